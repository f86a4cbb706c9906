// Where the document disagrees with itself: the answer that was chosen and each other one, with what speaks for it.

import { citation, confidenceMeter } from "./citation.js";
import { el, put } from "./dom.js";
import { brief, plural, printable } from "./format.js";
import { emptyNote, panel } from "./panel.js";

export class ConflictsPanel {
  constructor({ jobId, onShow }) {
    Object.assign(this, { jobId, onShow });
    this.host = panel("Conflicts", { className: "conflicts-panel" });
  }

  /** Citations are numbered on from the answer's own. */
  show(result) {
    const conflicts = result.conflicts ?? [];
    if (!conflicts.length) return put(this.host.body, emptyNote("No conflict with another part of the document was found."));
    const total = conflicts.length + 1;
    put(this.host.body,
      el("p", {}, `The document gives ${total} different answers.`),
      el("ul", { class: "sides" },
        side("Chosen", result.answer, result.confidence, result.probability,
          el("p", { class: "hint" }, `${plural((result.evidence ?? []).length, "quote")}, under the answer above`)),
        conflicts.map((other, at) => this.#other(other, conflicts.length > 1 ? `Other side ${at + 1}` : "Other side", numberBefore(result, at)))));
  }

  #other({ answer, probability, evidence = [] }, label, before) {
    const quotes = evidence.map((each, at) => citation(each, before + at + 1, this.jobId, this.onShow));
    return side(label, answer, confidenceOf(probability), probability, el("ol", { class: "citations", "aria-label": `Quotes for ${brief(answer, 60)}` }, quotes));
  }
}

function side(label, answer, confidence, probability, quotes) {
  return el("li", { class: label === "Chosen" ? "side chosen" : "side" },
    el("p", { class: "side-label" }, label), el("p", { class: "side-answer" }, printable(answer)), confidenceMeter(confidence, probability), quotes);
}

/** How many citations come before those of a side. */
export function numberBefore({ evidence = [], conflicts = [] }, side) {
  return conflicts.slice(0, side).reduce((sum, each) => sum + (each.evidence ?? []).length, evidence.length);
}

/** Fifths of the probability, as the answer's own. */
const confidenceOf = (probability) => Math.min(5, 1 + Math.floor(probability * 5));
