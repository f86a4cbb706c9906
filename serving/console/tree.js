// What became of the findings: one row per collapse round and one for the reduce, aligned with the ribbon above them.
// A bar stands under the chunks it was made from; its teeth are the findings that went in.

import { el, put, svg } from "./dom.js";
import { number, plural } from "./format.js";
import { collapseRows, TERMINAL } from "./run_state.js";

const TEETH = 12;
const BAR = 10;
const ROW = TEETH + BAR + 2;

export class Tree {
  /** `onLight(chunks or null)` when a node is looked at. */
  constructor(scale, { onLight }) {
    this.scale = scale;
    this.onLight = onLight;
    this.rows = [];
    this.pointed = null;
    this.host = el("div", { class: "tree", role: "group", "aria-label": "How the findings were put together" });
    scale.addEventListener("change", () => this.draw());
  }

  /** Drawn anew only if something in it changed: whoever points at a node keeps it. */
  update(run) {
    const found = run.chunks.reduce((count, chunk) => count + (chunk.state === "found"), 0);
    const now = [run.state, found, run.collapses.length, run.stages.get("reduce")?.done].join();
    if (now === this.shown) return;
    this.shown = now;
    this.rows = treeRows(run);
    this.draw();
  }

  /** Show the way from a chunk down to the answer; null for none. */
  trace(index) {
    if (this.pointed === index) return;
    this.pointed = index;
    for (const bar of this.host.querySelectorAll(".node")) {
      bar.classList.toggle("on-path", index !== null && bar.chunks.includes(index));
    }
  }

  draw() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      const focused = document.activeElement?.closest(".node")?.getAttribute("data-name");
      put(this.host, this.rows.map((row) => this.#row(row)));
      if (focused) /** @type {SVGElement | null} */ (this.host.querySelector(`[data-name="${focused}"]`))?.focus();
    });
  }

  #row(row) {
    const strip = svg("svg", { class: "tree-strip", width: this.scale.width, height: ROW, "aria-hidden": row.nodes.length ? null : "true" });
    strip.append(...row.nodes.map((node, at) => this.#node(row, node, at)));
    const waits = row.nodes.length ? null : svg("line", { class: "tree-waits", x1: 0, x2: this.scale.width, y1: TEETH + BAR / 2, y2: TEETH + BAR / 2 });
    if (waits) strip.append(waits);
    return el("div", { class: "tree-row" }, el("span", { class: "row-label" }, row.label), strip);
  }

  #node(row, node, at) {
    const { scale } = this;
    const [left, right] = [scale.x(node.chunks[0]), scale.x(node.chunks.at(-1) + 1)];
    if (right < 0 || left > scale.width) return svg("g", {});
    const width = Math.max(3, right - left - Math.min(2, scale.cellWidth / 4));
    const words = `${row.label}: ${plural(node.parts.length, "finding")} of chunks ${number(node.chunks[0] + 1)} to ${number(node.chunks.at(-1) + 1)} became one`;
    const shape = svg("g", {
      class: `node${this.pointed !== null && node.chunks.includes(this.pointed) ? " on-path" : ""}`,
      tabindex: "0", role: "img", "aria-label": words, dataset: { name: `${row.depth}-${at}` },
      onpointerenter: () => this.onLight(node.chunks), onpointerleave: () => this.onLight(null),
      onfocus: () => this.onLight(node.chunks), onblur: () => this.onLight(null),
    },
      svg("title", {}, words),
      svg("path", { class: "teeth", d: node.parts.map((part) => `M${tooth(scale, part)} 0V${TEETH}`).join("") }),
      svg("rect", { class: "bar", x: left, y: TEETH, width, height: BAR, rx: 3 }),
    );
    shape.chunks = node.chunks;
    return shape;
  }
}

const tooth = (scale, chunks) => ((scale.x(chunks[0]) + scale.x(chunks.at(-1) + 1)) / 2).toFixed(1);

/** Rows of {label, depth, nodes: [{chunks, parts}]}; parts are what stands one row above and went in. */
export function treeRows(run) {
  let above = run.chunks.filter((chunk) => chunk.state === "found").map((chunk) => [chunk.index]);
  const rows = [];
  for (const { depth, groups } of collapseRows(run)) {
    const nodes = groups.map((group) => {
      const inside = new Set(group.chunks);
      return { chunks: group.chunks, parts: above.filter((part) => inside.has(part[0])) };
    });
    const taken = new Set(groups.flatMap((group) => group.chunks));
    above = [...above.filter((part) => !taken.has(part[0])), ...groups.map((group) => group.chunks)];
    above.sort((a, b) => a[0] - b[0]);
    rows.push({ label: `Collapse ${depth}`, depth, nodes });
  }
  const reduced = (run.stages.get("reduce")?.done ?? 0) > 0 || (run.state === "completed" && above.length > 0);
  if (run.state === "completed" && !above.length) return rows;
  if (TERMINAL.has(run.state) && !reduced) return rows;
  const all = above.flat().sort((a, b) => a - b);
  rows.push({ label: "Reduce", depth: "reduce", nodes: reduced && all.length ? [{ chunks: all, parts: above }] : [] });
  return rows;
}
