// The same question under two to four strategies, side by side.

import { confidenceMeter } from "./citation.js";
import { saveFile, toCsv, toMarkdown } from "./compare_export.js";
import { el, put, setText } from "./dom.js";
import { brief, number, percent, printable } from "./format.js";
import { comparePlace, jobPlace } from "./location.js";
import { button, emptyNote, errorNote, loadingNote } from "./panel.js";
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
    this.closed = false;
  }

  async open({ jobs }) {
    put(this.host, el("h1", { class: "unseen" }, "Compare strategies"));
    if (jobs.length >= MIN_SIDES) return this.#showComparison(jobs.slice(0, MAX_SIDES));
    await this.#showForm(jobs[0] ?? "");
  }

  close() {
    this.closed = true;
    clearTimeout(this.polling);
  }

  async #showForm(fromId) {
    const legend = el("legend", {}, `Strategies (${MIN_SIDES} to ${MAX_SIDES})`);
    const boxes = el("fieldset", { class: "strategies" }, legend, loadingNote());
    const form = new QuestionForm(this.api, {
      title: "Question for every strategy", withStrategy: false, fields: boxes,
      actions: el("button", { type: "submit", class: "primary" }, "Compare"),
      onSubmit: () => {
        const body = form.read();
        const names = [...boxes.querySelectorAll("input:checked")].map((box) => /** @type {HTMLInputElement} */ (box).value);
        if (!body) return;
        if (names.length < MIN_SIDES || names.length > MAX_SIDES) form.refuse(`Choose ${MIN_SIDES} to ${MAX_SIDES} strategies.`);
        else form.submit(names.map((strategy) => ({ ...body, strategy })), comparePlace);
      },
    });
    this.host.append(el("div", { class: "ask-view" }, el("div", { class: "ask-left" }, form.documents.host), el("div", { class: "ask-right" }, form.host)));
    const [strategies, job] = await Promise.all([
      listStrategies(this.api).catch(() => USUAL.map((name) => ({ name }))), fromId ? this.api.job(fromId).catch(() => null) : null, form.documents.load(),
    ]);
    const before = job?.plan?.strategy ?? job?.strategy;
    put(boxes, legend, strategies.filter(({ name }) => name !== "auto").map(({ name }) => {
      const box = el("input", { type: "checkbox", value: name });
      box.checked = job ? name === before : USUAL.includes(name);
      return el("label", { class: "choice" }, box, strategyName(name));
    }));
    if (job) form.fill(job);
  }

  async #showComparison(ids) {
    this.sides = ids.map((id) => ({ id, job: null, result: null, error: null }));
    this.question = el("h1", {}, "Comparison");
    this.table = el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Comparison" }, loadingNote());
    const exports = el("div", { class: "actions" },
      button("Save CSV", () => saveFile("comparison.csv", "text/csv", toCsv(this.#plainRows()))),
      button("Save Markdown", () => saveFile("comparison.md", "text/markdown", toMarkdown(this.question.textContent, this.#plainRows()))),
      el("a", { class: "quiet", href: comparePlace([]) }, "New comparison"));
    put(this.host, el("header", { class: "job-head" }, this.question, exports), el("div", { class: "panel" }, el("div", { class: "panel-body" }, this.table)));
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
    put(this.table, el("table", { class: "comparison" },
      el("thead", {}, el("tr", {}, el("td"), this.sides.map((side) => el("th", { scope: "col" }, el("a", { href: jobPlace(side.id) }, sideName(side)))))),
      el("tbody", {}, this.#rows().filter(([, , show]) => show).map(([name, read, show]) =>
        el("tr", {}, el("th", { scope: "row" }, name), this.sides.map((side) => el("td", {}, show(side, read(side)))))))));
  }

  #plainRows() {
    return [["", ...this.sides.map(sideName)], ...this.#rows().map(([name, read]) => [name, ...this.sides.map((side) => read(side) ?? "")])];
  }

  /** [name, plain value of a side (null without one), how a cell shows it; rows without that are only exported]. */
  #rows() {
    const figure = (name, read, format) => [name, ({ result }) => (result ? read(result) : null), (_, value) => (value === null ? "–" : format(value))];
    const answer = ({ result }) => result && (result.found ? result.answer : "The document does not say.");
    return [
      ["Job", (side) => side.id],
      ["State", (side) => side.job?.state, stateCell],
      ["Answer", answer, ({ job }, value) => (value ? el("div", { class: "compared-answer" }, printable(value)) : job?.error ? brief(job.error.message, 200) : "–")],
      ["Confidence", ({ result }) => result?.confidence, ({ result }) => (result?.found ? confidenceMeter(result.confidence, result.probability) : "–")],
      ["Probability", ({ result }) => result?.probability],
      figure("Coverage", (result) => result.coverage.share, percent),
      figure("Citations", (result) => result.evidence.length, number),
      figure("Conflicts", (result) => result.conflicts.length, number),
      figure("Calls", (result) => usage(result).calls, number),
      figure("Reused calls", (result) => usage(result).journal, number),
      figure("Prompt tokens", (result) => usage(result).prompt, number),
      figure("Cached tokens", (result) => usage(result).cached, number),
      figure("Output tokens", (result) => usage(result).output, number),
      figure("Seconds", (result) => result.total_seconds, (seconds) => seconds.toFixed(1)),
      ...this.sides.map((other) => [`Same evidence as ${sideName(other)}`, (side) => evidenceOverlap(side.result?.evidence, other.result?.evidence),
        (side, shared) => (side === other || shared === null ? "–" : percent(shared))]),
    ];
  }
}

const usage = (result) => sumUsage(usageRows(result));
const sideName = (side) => strategyName(side.job?.plan?.strategy ?? side.job?.strategy ?? side.id);

function stateCell({ job, error }) {
  if (error) return el("span", { class: "error-text" }, error.message);
  const [name, { done = 0, calls = null }] = Object.entries(job.progress?.stages ?? {}).at(-1) ?? ["", {}];
  return [stateBadge(job.state), job.state === "running" && name ? ` ${name} ${number(done)}${calls ? ` / ${number(calls)}` : ""}` : ""];
}

/** How much two answers rest on the same places, by characters of their quotes: 0 to 1, null if either has no located quote. */
function evidenceOverlap(first, second) {
  const [a, b] = [located(first), located(second)];
  if (!a.length || !b.length) return null;
  const both = covered([...a, ...b]);
  return (covered(a) + covered(b) - both) / both;
}

const located = (evidence) => (evidence ?? []).filter(({ start }) => Number.isInteger(start));

/** How many characters lie in at least one of the spans. */
function covered(spans) {
  let [sum, end] = [0, 0];
  for (const span of spans.toSorted((a, b) => a.start - b.start)) {
    sum += Math.max(0, span.end - Math.max(end, span.start));
    end = Math.max(end, span.end);
  }
  return sum;
}
