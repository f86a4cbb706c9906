// What a question will cost, before it is asked: pages, tokens, chunks, calls, time, and the stages as a drawing.

import { el } from "./dom.js";
import { duration, number, plural, shortNumber } from "./format.js";

/** `estimate` is the gateway's answer, `pages` the pages of the chosen documents (0 if they have none). */
export function planView(estimate, pages = 0) {
  const figures = el("dl", { class: "figures" },
    pages > 0 && figure("Pages", number(pages)),
    figure("Document", `${shortNumber(estimate.document_tokens)}`, "tokens"),
    figure("Chunks", number(estimate.chunks)),
    figure("Calls", `≤ ${number(estimate.calls)}`),
    figure("Input", `≤ ${shortNumber(estimate.prompt_tokens)}`, "tokens"),
    figure("Output", `≤ ${shortNumber(estimate.output_tokens)}`, "tokens"),
    figure("Time", timeRange(estimate)));
  return el("div", { class: "plan" },
    el("p", { class: "plan-strategy" }, el("strong", {}, estimate.strategy), estimate.reason ? ` — ${estimate.reason}` : ""),
    figures, drawing(estimate.graph_svg));
}

/** The gateway's SVG as an image, in which nothing can run; what it shows in words is its own label. */
function drawing(svg) {
  const { documentElement } = new DOMParser().parseFromString(`${svg.split(">", 1)[0]}/>`, "image/svg+xml"); // its style would break this page's policy
  const image = el("img", { class: "flowchart", src: `data:image/svg+xml,${encodeURIComponent(svg)}`, alt: documentElement.getAttribute("aria-label") });
  return el("div", { class: "flowchart-host", tabindex: "0", role: "region", "aria-label": "Stages" }, image);
}

/** One line of the plan, for a run that is under way. */
export function planLine(plan) {
  if (!plan) return "";
  const tokens = plan.document_tokens ? `${shortNumber(plan.document_tokens)} tokens in ` : "";
  return `${plan.strategy}: ${tokens}${plural(plan.chunks, "chunk")}, at most ${plural(plan.calls, "call")}`;
}

function timeRange({ seconds_low: low, seconds_high: high }) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return "not known yet";
  const [from, to] = [duration(low), duration(high)];
  return from === to ? from : `${from} to ${to}`;
}

function figure(name, value, unit = "") {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value, unit && el("small", {}, ` ${unit}`)));
}
