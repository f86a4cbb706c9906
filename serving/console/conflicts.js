// Where the document disagrees with itself: the answer that was chosen and each other one, with its quotes.

import { citations, confidenceMeter } from "./citation.js";
import { el, put } from "./dom.js";
import { brief, plural, printable } from "./format.js";
import { emptyNote, panel } from "./panel.js";

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
