// One question at work: progress, ribbon and tree on top; answer, conflicts and costs beside the document.

import { AnswerPanel, ConflictsPanel } from "./answer.js";
import { announce } from "./announce.js";
import { ChunkScale } from "./chunk_scale.js";
import { Connection } from "./connection.js";
import { copyButton } from "./copy_link.js";
import { DocumentView } from "./document_view.js";
import { el, put, setText, toggle } from "./dom.js";
import { brief, duration, number, printable } from "./format.js";
import { absolute, againPlace, comparePlace, jobPlace } from "./location.js";
import { button, errorNote, loadingNote, panel } from "./panel.js";
import { PausedPanel } from "./paused.js";
import { planLine } from "./plan.js";
import { Progress } from "./progress.js";
import { stateBadge } from "./recent_jobs.js";
import { describeChunk, Ribbon, ribbonLegend } from "./ribbon.js";
import { applyEvent, countChunks, isLastEvent, newRun, TERMINAL } from "./run_state.js";
import { followEvents } from "./stream.js";
import { strategyName } from "./strategies.js";
import { Tree } from "./tree.js";
import { UsagePanel } from "./usage.js";

const DRAW_EVERY_MS = 120;

export class JobView {
  constructor(api) {
    this.api = api;
    this.host = el("div", { class: "job-view" });
    this.paused = new PausedPanel({ onResume: (state) => this.#resume(state) });
  }

  async open({ job: id, span }) {
    this.id = id;
    this.run = newRun();
    this.result = null;
    put(this.host, loadingNote("Loading the question…"));
    try {
      this.job = await this.api.job(id);
    } catch (error) {
      return put(this.host, errorNote(error, () => this.open({ job: id, span })));
    }
    if (this.closed) return;
    document.title = `${brief(this.job.question, 60)} · Longfold`;
    this.#build();
    if (this.job.plan) applyEvent(this.run, { kind: "plan", data: this.job.plan });
    this.#follow();
    if (span) this.document.show(span);
  }

  /** The same job under another span: only the document moves. */
  moveTo(span) {
    if (span) this.document?.show(span, { title: this.#titleOf(span), from: this.leaving });
    this.leaving = null;
  }

  close() {
    this.closed = true;
    this.stream?.stop();
    this.ending?.abort();
    clearInterval(this.clock);
  }

  #build() {
    const id = this.id;
    const show = (evidence, from) => this.#showEvidence(evidence, from);
    this.ending?.abort();
    this.ending = new AbortController();
    this.scale = new ChunkScale();
    this.ribbon = new Ribbon(this.scale, { onOpen: (chunk) => this.#openChunk(chunk), onPoint: (index) => this.tree.trace(index), signal: this.ending.signal });
    this.tree = new Tree(this.scale, { onLight: (chunks) => this.ribbon.light(chunks) });
    this.progress = new Progress();
    this.answer = new AnswerPanel({ jobId: id, onShow: show });
    this.conflicts = new ConflictsPanel({ jobId: id, onShow: show });
    this.usage = new UsagePanel();
    this.connection = new Connection(() => this.stream?.reconnect());
    this.document = new DocumentView({ fetchText: (start, end) => this.api.text(id, start, end) });
    this.document.total = this.job.characters;
    toggle(this.conflicts.host, false);
    put(this.host, this.#header(), this.#mapPanel(),
      el("div", { class: "job-columns" },
        el("div", { class: "job-left" }, this.paused.host, this.answer.host, this.conflicts.host, this.usage.host),
        el("div", { class: "job-right" }, this.document.host)));
  }

  #header() {
    this.badge = el("span", {}, stateBadge(this.job.state));
    this.facts = el("span", { class: "hint" });
    this.actions = el("div", { class: "actions" });
    const names = (this.job.documents ?? []).map((document) => brief(document.name, 60)).join(", ");
    return el("header", { class: "job-head" },
      el("div", {}, el("h1", {}, printable(this.job.question)), el("p", { class: "job-facts" }, this.badge, names && el("span", {}, names), this.facts)),
      this.actions);
  }

  #mapPanel() {
    this.map = panel("Document map", { className: "map-panel" });
    const shown = el("span", { role: "status" });
    const zoom = el("div", { class: "zoom" }, shown,
      iconButton("−", "Zoom out", () => this.scale.zoom(1 / 1.6)), iconButton("+", "Zoom in", () => this.scale.zoom(1.6)),
      button("All", () => this.scale.showAll(), "quiet"));
    put(this.map.aside, this.connection.host, zoom);
    this.scale.addEventListener("change", () => setText(shown, this.scale.inWords));
    this.grid = el("div", { class: "map-grid" }, el("div", { class: "tree-row" }, el("span", { class: "row-label" }, "Map"), this.ribbon.slider), this.tree.host);
    this.legend = ribbonLegend(this.ending.signal);
    this.pointed = el("div", { class: "ribbon-line" }, this.ribbon.description, el("p", { class: "ribbon-keys", "aria-hidden": "true" }, "← → move · N P findings · Enter read · + − 0 zoom"));
    put(this.map.body, this.progress.host, this.grid, this.pointed, this.legend);
    return this.map;
  }

  #follow() {
    this.stream = followEvents({
      open: (after, signal) => this.api.events(this.id, after, signal),
      isLast: isLastEvent,
      onEvent: (event) => {
        applyEvent(this.run, { kind: event.kind, data: event.data, at: event.data?.at ?? Date.now() / 1000 });
        this.#soon();
      },
      onState: (state) => this.connection.show(state),
    });
    this.clock = setInterval(() => this.#showFacts(), 1_000);
    this.#soon();
  }

  /** However many events come, the page is drawn a few times a second. */
  #soon() {
    this.drawing ??= setTimeout(() => {
      this.drawing = null;
      if (!this.closed) this.#draw();
    }, DRAW_EVERY_MS);
  }

  #draw() {
    const { run } = this;
    if (run.state !== this.drawnState) this.#enter(run.state);
    for (const part of [this.grid, this.pointed, this.legend]) toggle(part, run.chunks.length > 0);
    this.ribbon.setChunks(run.chunks);
    this.tree.update(run);
    this.progress.update(run);
    this.paused.update(run);
    this.answer.update(run, this.result, this.resultFailure);
    this.usage.update(run, this.result);
    this.#showFacts();
  }

  #enter(state) {
    this.drawnState = state;
    put(this.badge, stateBadge(state));
    this.#showActions(state);
    if (state === "completed") this.#fetchResult();
    else if (state === "paused") announce("The run is paused.", true);
    else if (TERMINAL.has(state)) announce(`The run was ${state}.`, true);
  }

  async #fetchResult() {
    try {
      this.result = await this.api.result(this.id);
      this.resultFailure = null;
    } catch (error) {
      this.resultFailure = error;
      return this.#soon();
    }
    const { evidence = [], conflicts = [] } = this.result;
    const byChunk = new Map();
    evidence.forEach(({ chunk, start }, at) => start !== null && byChunk.set(chunk, [...(byChunk.get(chunk) ?? []), at + 1]));
    this.ribbon.setCitations(byChunk);
    const all = [...evidence, ...conflicts.flatMap((side) => side.evidence ?? [])];
    this.document.setMarks(all.map(({ start, end }, at) => ({ start, end, n: at + 1, kind: at < evidence.length ? "cite" : "conflict" })));
    toggle(this.conflicts.host, this.result.found);
    this.conflicts.show(this.result);
    const first = evidence.find(({ start }) => start !== null);
    if (first && !this.document.visited) this.document.show(first, { title: this.#titleOf(first), quietly: true });
    this.#soon();
  }

  #showActions(state) {
    const over = TERMINAL.has(state);
    put(this.actions,
      !over && button("Cancel", (event) => this.#act(event, "Cancelling…", () => this.api.cancel(this.id)), "danger"),
      (state === "failed" || state === "cancelled") && button("Retry", (event) => this.#act(event, "Retrying…", async () => (await this.api.retry(this.id), this.#openAgain())), "primary"),
      el("a", { class: "quiet", href: againPlace(this.id) }, "Ask again"),
      state === "completed" && el("a", { class: "quiet", href: comparePlace([this.id]) }, "Compare"),
      copyButton("Copy link", () => absolute(jobPlace(this.id))));
  }

  async #act({ currentTarget }, words, action) {
    currentTarget.disabled = true;
    setText(currentTarget, words);
    try {
      await action();
    } catch (error) {
      this.#showActions(this.run.state);
      this.actions.append(errorNote(error));
    }
  }

  async #resume(state) {
    const over = TERMINAL.has(this.run.state); // of a paused run the stream is still open
    await this.api.resume(this.id, state);
    if (over) await this.#openAgain();
  }

  async #openAgain() {
    this.stream.stop();
    clearInterval(this.clock);
    this.drawnState = null;
    await this.open({ job: this.id, span: null });
  }

  #showFacts() {
    const { run } = this;
    const end = run.endedAt ?? (TERMINAL.has(run.state) ? null : Date.now() / 1000);
    const spent = this.result?.total_seconds ?? (run.startedAt && end ? Math.max(0, end - run.startedAt) : null);
    const counts = countChunks(run);
    setText(this.facts, [
      run.plan ? planLine(run.plan) : strategyName(this.job.strategy),
      spent !== null && duration(spent),
      run.attempt > 1 && `attempt ${run.attempt}`,
      counts.failed > 0 && `${number(counts.failed)} failed`,
    ].filter(Boolean).join(" · "));
  }

  #showEvidence(evidence, from) {
    const span = { start: evidence.start, end: evidence.end };
    this.ribbon.select(evidence.chunk);
    this.tree.trace(evidence.chunk);
    this.leaving = from;
    const place = jobPlace(this.id, span);
    if (location.hash === place) this.moveTo(span);
    else location.hash = place;
  }

  #titleOf({ start, end }) {
    const quotes = [this.result, ...(this.result?.conflicts ?? [])].flatMap((side) => side?.evidence ?? []);
    const quoted = quotes.find((each) => each.start === start && each.end === end);
    return quoted?.source ? `${brief(quoted.source, 60)}, line ${number(quoted.line)}` : "";
  }

  #openChunk(chunk) {
    if (!Number.isInteger(chunk.start)) return;
    const quotes = chunk.evidence.filter((each) => Number.isInteger(each.start)).map(({ start, end }) => ({ start, end }));
    this.document.show({ start: chunk.start, end: chunk.end }, { title: describeChunk(chunk, this.run.chunks.length), quotes, from: this.ribbon.slider });
  }
}

const iconButton = (sign, words, onclick) => el("button", { type: "button", class: "quiet icon", "aria-label": words, title: words, onclick }, sign);
