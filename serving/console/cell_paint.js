// How a chunk looks: hue for its state, lightness and height for its confidence, a pattern for what colour cannot say.

/** From least to most telling: what a column shows that stands for several chunks. */
const RANK = { waiting: 0, gated: 1, empty: 2, read: 3, found: 3, failed: 9 };

/** Pixels; on a narrower cell the hatch is a smudge. */
const HATCHED_FROM = 6;

export const rank = (chunk) => RANK[chunk.state] + (chunk.state === "found" ? (chunk.confidence ?? 1) : 0);

/** Paints with the page's colours, as they are now. */
export class CellPaint {
  constructor(host) {
    const style = getComputedStyle(host);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.waiting = colour("--cell-waiting");
    this.gated = colour("--cell-gated");
    this.gatedMark = colour("--cell-gated-mark");
    this.read = colour("--cell-read");
    this.empty = colour("--cell-empty");
    this.emptyMark = colour("--cell-empty-mark");
    this.failed = colour("--cell-failed");
    this.failedMark = colour("--cell-failed-mark");
    this.confidence = [1, 2, 3, 4, 5].map((step) => colour(`--confidence-${step}`));
    this.accent = colour("--accent");
    this.ink = colour("--ink");
    this.muted = colour("--muted");
    this.font = style.fontFamily;
  }

  /** One cell in the rectangle. */
  cell(context, chunk, x, y, width, height) {
    const radius = width >= 10 ? 2 : 0;
    const ground = chunk.state === "found" ? this.waiting : this[chunk.state];
    block(context, ground, x, y, width, height, radius);
    if (chunk.state === "found") this.#bar(context, chunk.confidence ?? 1, x, y, width, height, radius);
    else if (chunk.state === "empty") (width < HATCHED_FROM ? stripes : hatch)(context, this.emptyMark, x, y, width, height);
    else if (chunk.state === "failed") cross(context, this.failedMark, x, y, width, height);
    else if (chunk.state === "gated") dots(context, this.gatedMark, x, y, width, height);
  }

  #bar(context, confidence, x, y, width, height, radius) {
    const step = Math.min(5, Math.max(1, Math.round(confidence)));
    const tall = height * (0.28 + 0.18 * (step - 1));
    block(context, this.confidence[step - 1], x, y + height - tall, width, tall, radius);
  }
}

function block(context, colour, x, y, width, height, radius) {
  context.fillStyle = colour;
  if (!radius) return context.fillRect(x, y, width, height);
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
  context.fill();
}

function hatch(context, colour, x, y, width, height) {
  inside(context, x, y, width, height, () => {
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.beginPath();
    for (let start = x - height - ((x - height) % 5); start < x + width; start += 5) {
      context.moveTo(start, y + height);
      context.lineTo(start + height, y);
    }
    context.stroke();
  });
}

/** What the hatch is on a cell too narrow for it: what was read must differ from what was not at any width. */
function stripes(context, colour, x, y, width, height) {
  context.fillStyle = colour;
  for (let top = y + 2; top < y + height; top += 5) context.fillRect(x, top, width, 1);
}

function cross(context, colour, x, y, width, height) {
  const reach = Math.min(width, height) / 2 - 2;
  if (reach < 2) return;
  const [cx, cy] = [x + width / 2, y + height / 2];
  const arm = Math.min(reach, 6);
  context.strokeStyle = colour;
  context.lineWidth = 1.75;
  context.beginPath();
  context.moveTo(cx - arm, cy - arm);
  context.lineTo(cx + arm, cy + arm);
  context.moveTo(cx + arm, cy - arm);
  context.lineTo(cx - arm, cy + arm);
  context.stroke();
}

function dots(context, colour, x, y, width, height) {
  context.fillStyle = colour;
  const size = Math.min(1.5, width);
  const columns = Math.max(1, Math.floor(width / 9));
  for (let column = 0; column < columns; column += 1) {
    const cx = x + (width * (column + 0.5)) / columns - size / 2;
    for (let cy = y + 6; cy < y + height - 2; cy += 8) context.fillRect(cx, cy, size, size);
  }
}

function inside(context, x, y, width, height, paint) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  paint();
  context.restore();
}
