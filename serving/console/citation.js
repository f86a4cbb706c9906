// One piece of evidence: its number, its quote, where it stands and how it was found there.

import { copyButton } from "./copy_link.js";
import { el } from "./dom.js";
import { brief, number, percent, printable } from "./format.js";
import { absolute, jobPlace } from "./location.js";

const FOUND_AS = {
  pointer: ["pointer", "The model named this sentence by its number; the text is the document's own."],
  answer: ["answer", "The sentence that holds the answer's words, found by code."],
  exact: ["exact", "Copied by the model exactly as it stands."],
  normalised: ["normalised", "Copied but for punctuation, spaces or case."],
  fuzzy: ["fuzzy", "Copied nearly as it stands."],
  unlocated: ["not found", "This quote was not found in the document."],
};

/** `onShow(evidence)` leads to the place; without a place there is nothing to follow. */
export function citation(evidence, n, jobId, onShow) {
  const placed = Number.isInteger(evidence.start);
  const quote = el("q", { class: "quote" }, printable(evidence.quote.trim()));
  const open = placed
    ? el("button", { type: "button", class: "citation-open", "aria-label": `Show citation ${n} in the document: ${brief(evidence.quote, 80)}`, onclick: (event) => onShow(evidence, event.currentTarget) }, el("span", { class: "citation-number" }, n), quote)
    : el("div", { class: "citation-open" }, el("span", { class: "citation-number" }, n), quote);
  const span = placed ? { start: evidence.start, end: evidence.end } : null;
  return el("li", { class: "citation", dataset: { n: String(n) } }, open,
    el("p", { class: "citation-foot" },
      alignmentBadge(evidence), el("span", { class: "place" }, placeOf(evidence)),
      placed && copyButton("Copy link", () => absolute(jobPlace(jobId, span)), "link")));
}

export function alignmentBadge({ alignment, similarity }) {
  const [label, title] = FOUND_AS[alignment] ?? [alignment ?? "not found", ""];
  const near = alignment === "fuzzy" && Number.isFinite(similarity) ? ` ${percent(similarity)}` : "";
  return el("span", { class: `badge badge-${alignment ?? "unlocated"}`, title }, label + near);
}

function placeOf({ source, line, start, end }) {
  if (!Number.isInteger(start)) return "no place in the document";
  const where = source ? `${brief(source, 60)}${line ? `, line ${number(line)}` : ""} · ` : "";
  return `${where}${number(start)}–${number(end)}`;
}

/** Confidence 1 to 5 as five steps, in words too. */
export function confidenceMeter(confidence, probability) {
  const words = `Confidence ${confidence} of 5${Number.isFinite(probability) ? ` (${percent(probability)})` : ""}`;
  const steps = [1, 2, 3, 4, 5].map((step) => el("span", { class: step <= confidence ? `step on step-${step}` : "step" }));
  return el("span", { class: "confidence" }, el("span", { class: "steps", "aria-hidden": "true" }, steps), el("span", {}, words));
}
