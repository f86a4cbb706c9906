// The answer: provisional while the document is still being read, then final, with numbered citations, coverage and what contradicts it.

import { announce } from "./announce.js";
import { citations, confidenceMeter } from "./citation.js";
import { el, put } from "./dom.js";
import { brief, duration, number, percent, plural, printable } from "./format.js";
import { emptyNote, errorNote, loadingNote, panel } from "./panel.js";
import { TERMINAL } from "./run_state.js";

const MAX_FAILED_SHOWN = 10;
const NOT_FOUND = "The document does not say.";

export class AnswerPanel {
  constructor({ jobId, onShow }) {
    this.jobId = jobId;
    this.onShow = onShow;
    this.host = panel("Answer", { className: "answer-panel" });
    this.shown = "";
  }

  /** `result` is the final record, or null while there is none. */
  update(run, result, failure) {
    const provisional = run.provisionals.at(-1) ?? null;
    const now = JSON.stringify([run.state, run.provisionals.length, Boolean(result), failure?.message]);
    if (now === this.shown) return;
    this.shown = now;
    put(this.host.body, this.#content(run, result, provisional, failure));
    put(this.host.aside, !result && provisional && run.state !== "completed" ? el("span", { class: "badge badge-provisional" }, "provisional") : null);
    this.host.classList.toggle("provisional", !result && Boolean(provisional));
  }

  #content(run, result, provisional, failure) {
    if (result) return this.#final(result);
    if (failure) return errorNote(failure);
    if (run.state === "failed") return [errorNote(run.error ?? { message: "The run failed." }), provisional && this.#provisional(run, provisional)];
    if (run.state === "completed") return loadingNote("Fetching the answer…");
    if (provisional) return this.#provisional(run, provisional);
    if (run.state === "cancelled") return emptyNote("Cancelled before there was an answer.");
    return emptyNote("No answer yet. The first supported finding will be shown here as soon as there is one.");
  }

  #provisional(run, { answer, probability, evidence = [], reason }) {
    announce(`Provisional answer: ${brief(answer, 120)}`);
    return [
      el("p", { class: "answer-text" }, printable(answer)),
      el("p", { class: "answer-standing" }, Number.isFinite(probability) && `${percent(probability)} sure · `, reason ?? ""),
      citations(evidence, 0, this.jobId, this.onShow),
      el("p", { class: "hint" },
        run.state === "paused" ? "The run is paused; this may still change."
          : TERMINAL.has(run.state) ? "The run ended before this could be confirmed."
            : "This may still change: the rest of the document is being read."),
    ];
  }

  #final(result) {
    announce(result.found ? `Answer: ${brief(result.answer, 200)}` : NOT_FOUND, true);
    const evidence = result.evidence ?? [];
    return [
      el("p", { class: "answer-text" }, result.found ? printable(result.answer) : NOT_FOUND, evidence.map((each, at) => this.#mark(each, at + 1))),
      el("p", { class: "answer-standing" }, result.found && confidenceMeter(result.confidence, result.probability), el("span", {}, coverageText(result.coverage)), el("span", {}, duration(result.total_seconds))),
      result.explanation && result.explanation.trim() !== result.answer.trim() && el("p", { class: "explanation" }, printable(result.explanation)),
      notices(result),
      result.found && !evidence.length && emptyNote("This answer comes without a quote from the document."),
      citations(evidence, 0, this.jobId, this.onShow),
    ];
  }

  #mark(evidence, n) {
    if (!Number.isInteger(evidence.start)) return el("sup", { class: "mark-number" }, n);
    return el("sup", {}, el("button", { type: "button", class: "mark-number", "aria-label": `Citation ${n}`, onclick: (event) => this.onShow(evidence, event.currentTarget) }, n));
  }
}

/** Where the document disagrees with itself: the answer that was chosen and each other one, with its quotes. */
export class ConflictsPanel {
  constructor({ jobId, onShow }) {
    this.jobId = jobId;
    this.onShow = onShow;
    this.host = panel("Conflicts", { className: "conflicts-panel" });
  }

  /** Citations are numbered on from the answer's own. */
  show({ answer, confidence, probability, evidence = [], conflicts = [] }) {
    if (!conflicts.length) return put(this.host.body, emptyNote("No contradicting passage was found."));
    let before = evidence.length;
    const others = conflicts.map((other, at) => {
      const quotes = other.evidence ?? [];
      const list = citations(quotes, before, this.jobId, this.onShow, `Quotes for ${brief(other.answer, 60)}`);
      before += quotes.length;
      const fifths = Math.min(5, 1 + Math.floor(other.probability * 5)); // as the answer's own
      return side(conflicts.length > 1 ? `Other answer ${at + 1}` : "Other answer", other.answer, fifths, other.probability, list);
    });
    put(this.host.body,
      el("p", {}, `The document gives ${conflicts.length + 1} different answers.`),
      el("ul", { class: "sides" },
        side("Chosen", answer, confidence, probability, el("p", { class: "hint" }, `${plural(evidence.length, "quote")}, under the answer above`)), others));
  }
}

function side(label, answer, confidence, probability, quotes) {
  return el("li", { class: label === "Chosen" ? "side chosen" : "side" },
    el("p", { class: "side-label" }, label), el("p", { class: "side-answer" }, printable(answer)), confidenceMeter(confidence, probability), quotes);
}

function coverageText(coverage) {
  if (!coverage) return "";
  const inFull = coverage.chunks_extracted === coverage.chunks_read ? "" : `, ${number(coverage.chunks_extracted)} in full`;
  return `${number(coverage.chunks_read)} of ${plural(coverage.chunks, "chunk")} read (${percent(coverage.share)})${inFull}`;
}

function notices(result) {
  const failed = result.coverage?.failed_chunks ?? [];
  if (!failed.length && !result.warnings?.length) return null;
  const rest = failed.length - MAX_FAILED_SHOWN;
  return el("div", { class: "notice" },
    (result.warnings ?? []).map((warning) => el("p", {}, printable(warning))),
    failed.length > 0 && el("details", {}, el("summary", {}, `${plural(failed.length, "chunk")} not read`),
      el("ul", {}, failed.slice(0, MAX_FAILED_SHOWN).map((chunk) => el("li", {}, `Chunk ${number(chunk.index + 1)} (${number(chunk.start)}–${number(chunk.end)}): ${printable(chunk.message || chunk.error)}`)),
        rest > 0 && el("li", {}, `and ${number(rest)} more`))));
}
