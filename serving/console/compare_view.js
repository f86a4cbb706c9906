// The same question under two to four strategies, side by side.

import { confidenceMeter } from "./citation.js";
import { saveFile, toCsv, toMarkdown } from "./compare_export.js";
import { DocumentsPanel } from "./documents.js";
import { el, put, setText } from "./dom.js";
import { brief, number, percent, printable } from "./format.js";
import { comparePlace, jobPlace } from "./location.js";
import { evidenceOverlap } from "./overlap.js";
import { button, emptyNote, errorNote, loadingNote, panel } from "./panel.js";
import { QuestionForm } from "./question_form.js";
import { stateBadge } from "./recent_jobs.js";
import { TERMINAL } from "./run_state.js";
import { listStrategies, strategyName } from "./strategies.js";
import { sumUsage, usageRows } from "./usage.js";

const MIN_SIDES = 2;
const MAX_SIDES = 4;
const POLL_MS = 1_500;
const USUAL = ["mapreduce", "truncate"]; // the second is the control that the first has to beat

export class CompareView {
  constructor(api) {
    this.api = api;
    this.host = el("div", { class: "compare-view" });
  }

  async open({ jobs }) {
    this.closed = false;
    put(this.host, el("h1", { class: "unseen" }, "Compare strategies"));
    if (jobs.length >= MIN_SIDES) return this.#showComparison(jobs.slice(0, MAX_SIDES));
    await this.#showForm(jobs[0] ?? "");
  }

  close() {
    this.closed = true;
    clearTimeout(this.polling);
  }

  async #showForm(fromId) {
    this.files = [];
    this.status = el("div", { class: "form-status" });
    this.documents = new DocumentsPanel(this.api, { onChoice: (files) => (this.files = files) });
    this.form = new QuestionForm({ onChange: () => put(this.status), withStrategy: false });
    this.boxes = el("fieldset", { class: "strategies" }, el("legend", {}, `Strategies (${MIN_SIDES} to ${MAX_SIDES})`), loadingNote());
    const form = el("form", { novalidate: true }, this.form.host, this.boxes, this.status,
      el("div", { class: "actions" }, el("button", { type: "submit", class: "primary" }, "Compare")));
    form.addEventListener("submit", (event) => (event.preventDefault(), this.#submit()));
    const asking = panel("Question for every strategy");
    put(asking.body, form);
    this.host.append(el("div", { class: "ask-view" }, el("div", { class: "ask-left" }, this.documents.host), el("div", { class: "ask-right" }, asking)));
    const [strategies, , job] = await Promise.all([
      listStrategies(this.api).catch(() => USUAL.map((name) => ({ name }))), this.documents.load(), fromId ? this.api.job(fromId).catch(() => null) : null,
    ]);
    this.#offer(strategies.map(({ name }) => name).filter((name) => name !== "auto"), job);
  }

  #offer(names, job) {
    this.given = job;
    const before = job?.plan?.strategy ?? job?.strategy;
    const usual = USUAL.every((name) => names.includes(name)) ? USUAL : names.slice(0, MIN_SIDES);
    put(this.boxes, el("legend", {}, `Strategies (${MIN_SIDES} to ${MAX_SIDES})`), names.map((name) => {
      const box = el("input", { type: "checkbox", value: name });
      box.checked = job ? name === before : usual.includes(name);
      return el("label", { class: "choice" }, box, strategyName(name));
    }));
    if (!job) return;
    this.form.fill(job);
    this.documents.choose((job.documents ?? []).map((document) => document.file_id));
  }

  async #submit() {
    const names = [...this.boxes.querySelectorAll("input:checked")].map((box) => box.value);
    const { body, complaint, field } = this.form.read(this.files);
    const wrong = complaint ?? (names.length < MIN_SIDES || names.length > MAX_SIDES ? `Choose ${MIN_SIDES} to ${MAX_SIDES} strategies.` : null);
    if (wrong) return put(this.status, errorNote(wrong)), field?.focus();
    put(this.status, loadingNote("Submitting…"));
    try {
      const ids = [];
      for (const strategy of names) ids.push((await this.api.submit({ ...body, strategy })).id);
      location.hash = comparePlace(ids);
    } catch (error) {
      put(this.status, errorNote(error));
    }
  }

  async #showComparison(ids) {
    this.sides = ids.map((id) => ({ id, job: null, result: null, error: null }));
    this.question = el("h1", {}, "Comparison");
    this.table = el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Comparison" }, loadingNote());
    this.exports = el("div", { class: "actions" },
      button("Save CSV", () => saveFile("comparison.csv", "text/csv", toCsv(this.#rows()))),
      button("Save Markdown", () => saveFile("comparison.md", "text/markdown", toMarkdown(this.question.textContent, this.#rows()))),
      el("a", { class: "quiet", href: comparePlace([]) }, "New comparison"));
    put(this.host, el("header", { class: "job-head" }, this.question, this.exports), el("div", { class: "panel" }, el("div", { class: "panel-body" }, this.table)));
    await this.#poll();
  }

  async #poll() {
    await Promise.all(this.sides.map((side) => this.#refresh(side)));
    if (this.closed) return;
    this.#draw();
    const unfinished = this.sides.some((side) => (side.error ? side.error.status === 0 || side.error.status >= 500 : !TERMINAL.has(side.job.state)));
    if (unfinished) this.polling = setTimeout(() => this.#poll(), POLL_MS);
  }

  async #refresh(side) {
    if (side.result || (side.job && TERMINAL.has(side.job.state) && side.job.state !== "completed")) return;
    try {
      side.job = await this.api.job(side.id);
      if (side.job.state === "completed") side.result = await this.api.result(side.id);
      side.error = null;
    } catch (error) {
      side.error = error;
    }
  }

  #draw() {
    const known = this.sides.find((side) => side.job);
    if (!known) return put(this.table, this.sides[0].error ? errorNote(this.sides[0].error, () => this.#poll()) : emptyNote("Nothing to compare."));
    setText(this.question, printable(known.job.question));
    const line = (name, cell) => el("tr", {}, el("th", { scope: "row" }, name), this.sides.map((side) => el("td", {}, cell(side))));
    put(this.table, el("table", { class: "comparison" },
      el("thead", {}, el("tr", {}, el("td"), this.sides.map((side) => el("th", { scope: "col" }, el("a", { href: jobPlace(side.id) }, sideName(side)))))),
      el("tbody", {},
        line("State", stateCell), line("Answer", answerCell),
        line("Confidence", ({ result }) => (result?.found ? confidenceMeter(result.confidence, result.probability) : "–")),
        FIGURES.map(([name, read, format]) => line(name, (side) => (side.result ? format(read(side.result)) : "–"))),
        this.sides.map((other) => line(`Same evidence as ${sideName(other)}`, (side) => overlapCell(side, other))))));
  }

  /** The comparison as plain values, one column per strategy. */
  #rows() {
    const row = (name, read) => [name, ...this.sides.map((side) => (side.result ? read(side.result) : ""))];
    return [
      ["", ...this.sides.map(sideName)],
      ["Job", ...this.sides.map((side) => side.id)],
      ["State", ...this.sides.map((side) => side.job?.state ?? "")],
      row("Answer", (result) => (result.found ? result.answer : "The document does not say.")),
      row("Confidence", (result) => result.confidence), row("Probability", (result) => result.probability),
      ...FIGURES.map(([name, read]) => row(name, read)),
      ...this.sides.map((other) => [`Same evidence as ${sideName(other)}`, ...this.sides.map((side) => evidenceOverlap(side.result?.evidence, other.result?.evidence) ?? "")]),
    ];
  }
}

const usage = (result) => sumUsage(usageRows(result));

/** @type {[string, (result: any) => number, (value: number) => string][]} */
const FIGURES = [
  ["Coverage", (result) => result.coverage.share, percent],
  ["Citations", (result) => result.evidence.length, number],
  ["Conflicts", (result) => result.conflicts.length, number],
  ["Calls", (result) => usage(result).calls, number],
  ["Reused calls", (result) => usage(result).journal, number],
  ["Prompt tokens", (result) => usage(result).prompt, number],
  ["Cached tokens", (result) => usage(result).cached, number],
  ["Output tokens", (result) => usage(result).output, number],
  ["Seconds", (result) => result.total_seconds, (seconds) => seconds.toFixed(1)],
];

const sideName = (side) => strategyName(side.job?.plan?.strategy ?? side.job?.strategy ?? side.id);

function stateCell({ job, error }) {
  if (error) return el("span", { class: "error-text" }, error.message);
  return [stateBadge(job.state), job.state === "running" ? ` ${progressText(job.progress)}` : ""];
}

function progressText(progress) {
  const stages = Object.entries(progress?.stages ?? {});
  const [name, { done = 0, calls = null }] = stages.at(-1) ?? ["", {}];
  return name && `${name} ${number(done)}${calls ? ` / ${number(calls)}` : ""}`;
}

function answerCell({ job, result }) {
  if (result) return el("div", { class: "compared-answer" }, result.found ? printable(result.answer) : "The document does not say.");
  return job?.error ? brief(job.error.message, 200) : "–";
}

function overlapCell(side, other) {
  if (side === other) return "–";
  const shared = evidenceOverlap(side.result?.evidence, other.result?.evidence);
  return shared === null ? "–" : percent(shared);
}
