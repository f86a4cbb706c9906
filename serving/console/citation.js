// Evidence: each quote with its number, where it is and how it was found there; and confidence as a picture.

import { copyButton } from "./copy_link.js";
import { el } from "./dom.js";
import { brief, number, percent, printable } from "./format.js";
import { absolute, jobPlace } from "./location.js";

const FOUND_AS = {
  pointer: ["sentence number", "The model cited this sentence by its number; the text is the document's own."],
  answer: ["answer", "The sentence that holds the answer's words, found by code."],
  clue: ["clue", "The sentence closest to the question's words, found by code."],
  exact: ["exact", "Copied by the model exactly as in the document."],
  normalised: ["normalised", "Copied except for punctuation, spaces or case."],
  fuzzy: ["fuzzy", "Copied with small differences."],
  unlocated: ["not found", "This quote was not found in the document."],
};

/** A numbered list, from `before + 1` on; null for none. `onShow(evidence, from)` leads to the place of a quote. */
export function citations(evidence, before, jobId, onShow, label = "Citations") {
  if (!evidence.length) return null;
  return el("ol", { class: "citations", "aria-label": label }, evidence.map((each, at) => citation(each, before + at + 1, jobId, onShow)));
}

function citation(evidence, n, jobId, onShow) {
  const placed = Number.isInteger(evidence.start); // without a place there is nothing to follow
  const content = [el("span", { class: "citation-number" }, n), el("q", { class: "quote" }, printable(evidence.quote.trim()))];
  const open = placed
    ? el("button", { type: "button", class: "citation-open", "aria-label": `Show citation ${n} in the document: ${brief(evidence.quote, 80)}`, onclick: (event) => onShow(evidence, event.currentTarget) }, content)
    : el("div", { class: "citation-open" }, content);
  const { alignment = "unlocated", similarity } = evidence;
  const [found, title] = FOUND_AS[alignment] ?? [alignment, ""];
  const near = alignment === "fuzzy" && Number.isFinite(similarity) ? ` ${percent(similarity)}` : "";
  return el("li", { class: "citation", dataset: { n: String(n) } }, open,
    el("p", { class: "citation-foot" },
      el("span", { class: `badge badge-${alignment}`, title }, found + near), el("span", { class: "place" }, placeOf(evidence)),
      placed && copyButton("Copy link", () => absolute(jobPlace(jobId, evidence)), "link")));
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
