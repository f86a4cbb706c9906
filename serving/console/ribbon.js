// The document as one strip, a cell per chunk. A canvas, so that thousands of chunks cost as little as ten; for the
// keyboard and for screen readers it is a slider whose value is the chunk, described in words.

import { CellPaint, rank } from "./cell_paint.js";
import { el, setText } from "./dom.js";
import { brief, number, percent } from "./format.js";

const HEIGHT = 48;
const MARKS = 16; // above the cells, for the numbers of citations
const MIN_COLUMN_PX = 2.5;
const MIN_DRAG_PX = 4; // less is a click
const CITATION_GAP = 26; // closer numbers would touch

const MOVES = {
  ArrowRight: (at) => at + 1,
  ArrowUp: (at) => at + 1,
  ArrowLeft: (at) => at - 1,
  ArrowDown: (at) => at - 1,
  PageDown: (at, count) => at + Math.max(1, Math.round(count / 20)),
  PageUp: (at, count) => at - Math.max(1, Math.round(count / 20)),
  Home: () => 0,
  End: (_, count) => count - 1,
};

export class Ribbon {
  /** `onOpen(chunk)` when a chunk is to be read, `onPoint(index or null)` when one is looked at; lives until `signal`. */
  constructor(scale, { onOpen, onPoint, signal }) {
    this.scale = scale;
    this.onOpen = onOpen;
    this.onPoint = onPoint;
    this.chunks = [];
    this.citations = new Map();
    this.lit = null;
    this.selected = 0;
    this.hovered = null;
    this.canvas = el("canvas", { class: "ribbon-canvas", "aria-hidden": "true" });
    this.slider = el("div", {
      class: "ribbon", tabindex: "0", role: "slider", "aria-label": "Document, one cell per chunk",
      "aria-orientation": "horizontal", "aria-valuemin": "1", "aria-keyshortcuts": "Enter N P + - 0",
    }, this.canvas);
    this.description = el("p", { class: "ribbon-description" });
    this.#listen();
    scale.addEventListener("change", () => this.draw());
    new ResizeObserver(() => scale.setWidth(this.slider.clientWidth)).observe(this.slider);
    onSchemeChange(() => ((this.paint = null), this.draw()), signal);
  }

  setChunks(chunks) {
    this.chunks = chunks;
    this.scale.setCount(chunks.length);
    this.slider.setAttribute("aria-valuemax", String(Math.max(1, chunks.length)));
    this.#describe();
    this.draw();
  }

  /** Numbers of the answer's citations by chunk. */
  setCitations(citations) {
    this.citations = citations;
    this.draw();
  }

  /** Outline these chunks; null for none. */
  light(indices) {
    this.lit = indices ? new Set(indices) : null;
    this.draw();
  }

  select(index, reveal = true) {
    if (!this.chunks.length) return;
    this.selected = Math.max(0, Math.min(this.chunks.length - 1, index));
    if (reveal) this.scale.reveal(this.selected);
    this.#describe();
    this.draw();
  }

  draw() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      this.#paintAll();
    });
  }

  #listen() {
    const { slider, scale } = this;
    slider.addEventListener("keydown", (event) => this.#onKey(event));
    slider.addEventListener("focus", () => this.onPoint(this.selected));
    slider.addEventListener("blur", () => this.onPoint(null));
    slider.addEventListener("pointerleave", () => this.#hover(null));
    let from = null; // while zoomed, dragging moves the strip; a finger has no wheel
    slider.addEventListener("pointerdown", (event) => {
      from = scale.zoomed ? event.clientX : null;
      this.dragged = false;
    });
    slider.addEventListener("pointermove", (event) => {
      this.#hover(scale.at(event.offsetX));
      if (from === null || (!this.dragged && Math.abs(event.clientX - from) < MIN_DRAG_PX)) return;
      slider.setPointerCapture(event.pointerId);
      this.dragged = true;
      slider.classList.add("dragging");
      scale.pan((from - event.clientX) / scale.cellWidth);
      from = event.clientX;
    });
    for (const kind of ["pointerup", "pointercancel"]) slider.addEventListener(kind, () => ((from = null), slider.classList.remove("dragging")));
    slider.addEventListener("click", (event) => {
      const index = scale.at(event.offsetX);
      if (index === null || this.dragged) return;
      this.select(this.#foremostIn(index), false);
      this.onOpen(this.chunks[this.selected]);
    });
    slider.addEventListener("wheel", (event) => {
      if (event.ctrlKey) scale.zoom(event.deltaY < 0 ? 1.25 : 0.8, scale.first + event.offsetX / scale.cellWidth);
      else if (scale.zoomed && event.deltaX) scale.pan(event.deltaX / scale.cellWidth);
      else return;
      event.preventDefault();
    }, { passive: false });
  }

  #onKey(event) {
    const { scale, selected, chunks } = this;
    const move = MOVES[event.key];
    const action = move ? () => this.select(move(selected, chunks.length)) : {
      n: () => this.#toFinding(1),
      p: () => this.#toFinding(-1),
      enter: () => this.onOpen(chunks[selected]),
      " ": () => this.onOpen(chunks[selected]),
      "+": () => scale.zoom(1.6, selected + 0.5),
      "=": () => scale.zoom(1.6, selected + 0.5),
      "-": () => scale.zoom(1 / 1.6, selected + 0.5),
      0: () => scale.showAll(),
    }[event.key.toLowerCase()];
    if (!action || event.altKey || event.ctrlKey || event.metaKey || !chunks.length) return;
    action();
    event.preventDefault();
    this.onPoint(this.selected);
  }

  #toFinding(step) {
    for (let at = this.selected + step; at >= 0 && at < this.chunks.length; at += step) {
      if (this.chunks[at].state === "found" || this.chunks[at].state === "failed") return this.select(at);
    }
  }

  #hover(index) {
    if (index === this.hovered) return;
    this.hovered = index;
    this.slider.classList.toggle("pointing", index !== null);
    this.onPoint(index === null ? null : this.#foremostIn(index));
    this.#describe();
    this.draw();
  }

  #describe() {
    const index = this.hovered === null ? this.selected : this.#foremostIn(this.hovered);
    const chunk = this.chunks[index];
    setText(this.description, chunk ? describeChunk(chunk, this.chunks.length, this.citations.get(index)) : "");
    const own = this.chunks[this.selected];
    if (!own) return;
    this.slider.setAttribute("aria-valuenow", String(this.selected + 1));
    this.slider.setAttribute("aria-valuetext", describeChunk(own, this.chunks.length, this.citations.get(own.index)));
  }

  /** How many chunks share a column, so that columns are wide enough to be seen. */
  get perColumn() {
    return Math.max(1, Math.ceil(MIN_COLUMN_PX / this.scale.cellWidth));
  }

  /** The foremost chunk of the column of `index`. */
  #foremostIn(index) {
    const start = index - (index % this.perColumn);
    const column = this.chunks.slice(start, start + this.perColumn);
    return column.reduce((best, chunk) => (rank(chunk) > rank(best) ? chunk : best), column[0])?.index ?? index;
  }

  #paintAll() {
    const { scale, canvas } = this;
    if (!scale.width || !this.slider.isConnected) return;
    this.paint ??= new CellPaint(this.slider);
    const ratio = devicePixelRatio || 1;
    const [wide, high] = [Math.round(scale.width * ratio), (HEIGHT + MARKS) * ratio];
    if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, scale.width, HEIGHT + MARKS);
    this.#paintCells(context);
    this.#paintOutlines(context);
    this.#paintCitations(context);
  }

  #paintCells(context) {
    const { scale, perColumn, chunks } = this;
    const step = scale.cellWidth * perColumn;
    const gap = step >= 7 ? 2 : step >= 3.5 ? 1 : 0;
    const start = Math.floor(scale.first);
    for (let at = start - (start % perColumn); at < Math.min(scale.last, chunks.length); at += perColumn) {
      const chunk = perColumn === 1 ? chunks[at] : chunks[this.#foremostIn(at)];
      this.paint.cell(context, chunk, scale.x(at), MARKS, Math.max(1, step - gap), HEIGHT);
    }
  }

  #paintOutlines(context) {
    if (this.lit) {
      context.fillStyle = this.paint.accent;
      for (const index of this.lit) {
        context.fillRect(this.scale.x(index), MARKS + HEIGHT - 3, Math.max(2, this.scale.cellWidth - 1), 3);
      }
    }
    const at = this.hovered ?? (document.activeElement === this.slider ? this.selected : null);
    if (at === null || !this.chunks.length) return;
    const width = Math.max(6, this.scale.cellWidth);
    context.strokeStyle = this.paint.ink;
    context.lineWidth = 2;
    context.strokeRect(this.scale.x(at) + (this.scale.cellWidth - width) / 2 - 0.5, MARKS - 2, width, HEIGHT + 1);
  }

  /** Numbers above the cells; those that would overlap are drawn as one range. */
  #paintCitations(context) {
    context.font = `600 11px ${this.paint.font}`;
    context.textAlign = "center";
    context.fillStyle = this.paint.accent;
    const clusters = [];
    for (const [index, numbers] of [...this.citations].sort(([a], [b]) => a - b)) {
      const x = this.scale.x(index + 0.5);
      if (x < 0 || x > this.scale.width) continue;
      context.fillRect(x - 0.75, MARKS - 4, 1.5, 4);
      const last = clusters.at(-1);
      if (last && x - last.right < CITATION_GAP) Object.assign(last, { right: x, numbers: [...last.numbers, ...numbers] });
      else clusters.push({ left: x, right: x, numbers: [...numbers] });
    }
    for (const { left, right, numbers } of clusters) {
      const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
      const label = low === high ? String(low) : `${low}–${high}`;
      const half = context.measureText(label).width / 2;
      context.fillText(label, Math.min(this.scale.width - half, Math.max(half, (left + right) / 2)), MARKS - 6);
    }
  }
}

function onSchemeChange(redraw, signal) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw, { signal });
}

/** In words: of a chunk, and shorter in the legend. */
const STATES = {
  waiting: ["not read", "not read"],
  gated: ["skipped as irrelevant to the question", "skipped as irrelevant"],
  read: ["read", "read"],
  empty: ["read; nothing found", "nothing found"],
  failed: ["not read: its call failed", "failed"],
};

export function describeChunk(chunk, count, citations = null) {
  const place = `Chunk ${number(chunk.index + 1)} of ${number(count)}${citations ? `, cited as ${citations.join(", ")}` : ""}`;
  if (chunk.state === "found") return `${place}: “${brief(chunk.answer, 110)}”, confidence ${chunk.confidence} of 5 (${percent(chunk.probability)})`;
  return `${place}: ${STATES[chunk.state][0]}${chunk.state === "failed" && chunk.error ? ` (${chunk.error})` : ""}`;
}

/** The meaning of the cells' looks. */
export function ribbonLegend(signal) {
  const swatches = [];
  const swatch = (chunk) => {
    const canvas = el("canvas", { class: "swatch", width: "28", height: "32", "aria-hidden": "true" });
    swatches.push({ canvas, chunk });
    return canvas;
  };
  const list = el("ul", { class: "legend", "aria-label": "Legend" },
    el("li", { class: "legend-steps" }, [1, 2, 3, 4, 5].map((confidence) => swatch({ state: "found", confidence })), "found, confidence 1–5"),
    Object.entries(STATES).map(([state, [, words]]) => el("li", {}, swatch({ state }), words)));
  const draw = () => {
    const cells = new CellPaint(list);
    for (const { canvas, chunk } of swatches) {
      const context = canvas.getContext("2d");
      context.setTransform(2, 0, 0, 2, 0, 0);
      context.clearRect(0, 0, 14, 16);
      cells.cell(context, chunk, 0, 0, 14, 16);
    }
  };
  requestAnimationFrame(draw);
  onSchemeChange(draw, signal);
  return list;
}
