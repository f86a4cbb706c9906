// The document, as far as it is looked at. Fetches ranges of code points around a place and keeps a few of them;
// a million tokens are never here at once.

import { el, put, setText, toggle } from "./dom.js";
import { number, printable } from "./format.js";
import { button, emptyNote, errorNote, loadingNote, panel } from "./panel.js";

const BLOCK = 4_000; // code points per request
const MAX_BLOCKS = 8;
const NEAR_PX = 600;

export class DocumentView {
  /** `fetchText(start, end)` gives {text}; `total` is the document's length in code points, 0 if unknown. */
  constructor({ fetchText }) {
    this.fetchText = fetchText;
    this.total = 0;
    this.marks = [];
    this.focus = null;
    this.blocks = new Map();
    this.visit = 0;
    this.host = panel("Document", { className: "document-panel" });
    this.place = el("p", { class: "document-place" });
    this.text = el("div", { class: "document-text", tabindex: "0", role: "region", "aria-label": "Text of the document" });
    this.text.addEventListener("scroll", () => this.#fill(), { passive: true });
    this.back = button("Back", () => this.#leave(), "quiet back");
    toggle(this.back, false);
    this.host.addEventListener("keydown", (event) => event.key === "Escape" && this.#leave());
    put(this.host.aside, this.back);
    put(this.host.body, this.place, this.text);
    put(this.text, emptyNote("Choose a citation, or a cell of the ribbon, to read that place here."));
  }

  /** Spans {start, end, n, kind} that are marked wherever they come into view. */
  setMarks(marks) {
    this.marks = marks.filter((mark) => Number.isInteger(mark.start)).sort((a, b) => a.start - b.start);
    for (const [start, block] of this.blocks) this.#render(start, block);
  }

  /**
   * Go to a span that is quoted, or (`quotes` given) to a chunk, of which these places are quoted.
   * `from` gets the focus back. Quietly: the focus stays where it is.
   */
  async show(span, { title = "", quotes = null, from = null, quietly = false } = {}) {
    const visit = (this.visit += 1);
    this.from = from ?? this.from;
    this.focus = quotes ? null : span;
    this.chunk = quotes && [{ ...span, kind: "extent" }, ...quotes.map((quote) => ({ ...quote, kind: "quote" }))];
    this.blocks.clear();
    this.text.classList.toggle("one-chunk", quotes !== null);
    toggle(this.back, Boolean(this.from));
    setText(this.place, [title, `characters ${number(span.start)}–${number(span.end)}`].filter(Boolean).join(" · "));
    put(this.text, loadingNote());
    const goal = quotes?.[0] ?? span;
    const first = blockOf(goal.start);
    try {
      const loaded = await this.#fetch(first);
      if (visit !== this.visit) return;
      put(this.text);
      this.#add(first, loaded);
      if (blockOf(Math.min(goal.end, goal.start + BLOCK) - 1) > first) await this.#extend(1);
      if (visit !== this.visit) return;
      this.#scrollTo(quietly);
      await this.#fill();
    } catch (error) {
      if (visit === this.visit) put(this.text, errorNote(error, () => this.show(span, { title, quotes })));
    }
  }

  #leave() {
    const back = this.from;
    this.from = null;
    toggle(this.back, false);
    back?.isConnected && back.focus();
  }

  #scrollTo(quietly) {
    const target = this.text.querySelector(this.focus ? "mark.focus" : "mark.quote") ?? this.text.querySelector(".extent");
    if (target) {
      const offset = target.getBoundingClientRect().top - this.text.getBoundingClientRect().top;
      this.text.scrollTop += offset - this.text.clientHeight * (target.tagName === "MARK" ? 0.3 : 0.04);
    }
    if (quietly) return;
    if (target) target.tabIndex = -1;
    (target ?? this.text).focus({ preventScroll: true });
    if (matchMedia("(max-width: 900px)").matches) this.host.scrollIntoView({ block: "start" });
  }

  get visited() {
    return this.visit > 0;
  }

  async #fetch(start) {
    if (this.total && start >= this.total) return "";
    const end = this.total ? Math.min(this.total, start + BLOCK) : start + BLOCK;
    const { text } = await this.fetchText(start, end);
    return text;
  }

  /** Load what has come near, one block at a time, and let go of what is far. */
  async #fill() {
    if (this.filling) return;
    this.filling = true;
    const visit = this.visit;
    try {
      for (let step = this.#wanted(); step !== 0 && visit === this.visit; step = this.#wanted()) await this.#extend(step);
    } catch {
      // The next scroll tries again.
    } finally {
      this.filling = false;
    }
    if (visit !== this.visit) this.#fill();
  }

  #wanted() {
    const starts = [...this.blocks.keys()];
    if (!starts.length) return 0;
    const { scrollTop, clientHeight, scrollHeight } = this.text;
    const lastBlock = this.blocks.get(Math.max(...starts));
    if (scrollTop + clientHeight > scrollHeight - NEAR_PX && !lastBlock.last) return 1;
    if (scrollTop < NEAR_PX && Math.min(...starts) > 0) return -1;
    return 0;
  }

  async #extend(step) {
    const visit = this.visit;
    const starts = [...this.blocks.keys()];
    const start = step > 0 ? Math.max(...starts) + BLOCK : Math.min(...starts) - BLOCK;
    const loaded = await this.#fetch(start);
    if (visit !== this.visit) return;
    const before = this.text.scrollHeight;
    this.#add(start, loaded);
    if (step < 0) this.text.scrollTop += this.text.scrollHeight - before;
    if (this.blocks.size > MAX_BLOCKS) this.#drop(step > 0 ? Math.min(...starts) : Math.max(...starts), step > 0);
  }

  #add(start, text) {
    const shown = printable(text);
    const starts = pointStarts(text);
    const block = { text: shown, starts, points: starts.length - 1, last: starts.length <= BLOCK, node: el("span", { class: "block" }) };
    this.blocks.set(start, block);
    this.#render(start, block);
    const after = Math.min(...[...this.blocks.keys()].filter((other) => other > start));
    this.text.insertBefore(block.node, this.blocks.get(after)?.node ?? null);
  }

  #drop(start, above) {
    const { node } = this.blocks.get(start);
    const before = this.text.scrollHeight;
    node.remove();
    this.blocks.delete(start);
    if (above) this.text.scrollTop -= before - this.text.scrollHeight;
  }

  /** Text nodes, and an element around each stretch that something covers. */
  #render(start, block) {
    const focus = this.focus ? [{ ...this.focus, kind: "focus" }] : [];
    const within = [...this.marks, ...(this.chunk ?? []), ...focus]
      .filter((mark) => mark.start < start + block.points && mark.end > start);
    const edges = new Set([0, block.points]);
    for (const mark of within) edges.add(Math.max(0, mark.start - start)).add(Math.min(block.points, mark.end - start));
    const cuts = [...edges].sort((a, b) => a - b);
    const parts = cuts.slice(1).map((to, at) => {
      const [from, last] = [start + cuts[at], start + to];
      const over = within.filter((mark) => mark.start <= from && mark.end >= last);
      return coveredPiece(block.text.slice(block.starts[cuts[at]], block.starts[to]), over, from);
    });
    put(block.node, parts);
  }
}

/** Offsets count code points, the browser's strings UTF-16 units: where in the string each code point begins, and its end. */
function pointStarts(text) {
  const starts = [0];
  for (const point of text) starts.push(starts.at(-1) + point.length);
  return starts;
}

const blockOf = (point) => point - (point % BLOCK);

function coveredPiece(piece, over, at) {
  const kinds = new Set(over.map((mark) => mark.kind));
  if (!kinds.size) return piece;
  const classes = [...kinds].join(" ");
  if (kinds.size === 1 && kinds.has("extent")) return el("span", { class: classes }, piece);
  const begins = over.filter((mark) => mark.n && mark.start === at).map((mark) => mark.n);
  return el("mark", { class: classes, dataset: begins.length ? { n: begins.join(", ") } : {} }, piece);
}
