// The one horizontal scale of a run: which chunks are in view and where they stand. Ribbon and tree share it.

const MIN_IN_VIEW = 8;

export class ChunkScale extends EventTarget {
  count = 0;
  first = 0;
  last = 0; // fractional, exclusive
  width = 0;

  setCount(count) {
    if (count === this.count) return;
    const whole = !this.zoomed;
    this.count = count;
    if (whole) [this.first, this.last] = [0, count];
    this.#changed();
  }

  setWidth(width) {
    if (width === this.width) return;
    this.width = width;
    this.#changed();
  }

  get zoomed() {
    return this.last - this.first < this.count;
  }

  /** Which chunks are in view; empty if all are. */
  get inWords() {
    if (!this.zoomed) return "";
    return `Chunks ${Math.floor(this.first) + 1}–${Math.min(this.count, Math.ceil(this.last))} of ${this.count}`;
  }

  get cellWidth() {
    return this.width / Math.max(1, this.last - this.first);
  }

  /** Left edge of a chunk, in CSS pixels; `index` may be fractional. */
  x(index) {
    return (index - this.first) * this.cellWidth;
  }

  /** The chunk at a place, or null outside. */
  at(x) {
    const index = Math.floor(this.first + x / this.cellWidth);
    return index >= 0 && index < this.count ? index : null;
  }

  /** Make cells `factor` times as wide around a chunk that stays where it is. */
  zoom(factor, around = (this.first + this.last) / 2) {
    const shown = this.last - this.first;
    const wanted = Math.min(this.count, Math.max(Math.min(MIN_IN_VIEW, this.count), shown / factor));
    const share = shown ? (around - this.first) / shown : 0.5;
    this.#show(around - share * wanted, wanted);
  }

  showAll() {
    this.#show(0, this.count);
  }

  pan(chunks) {
    this.#show(this.first + chunks, this.last - this.first);
  }

  /** Move as little as needed for a chunk to be in view. */
  reveal(index) {
    if (index < this.first) this.pan(index - this.first);
    else if (index + 1 > this.last) this.pan(index + 1 - this.last);
  }

  #show(first, shown) {
    this.first = Math.max(0, Math.min(first, this.count - shown));
    this.last = this.first + shown;
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
