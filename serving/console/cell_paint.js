// How a chunk looks: hue for its state, lightness and height for its confidence, a pattern for what colour cannot say.

import { el } from "./dom.js";

/** Of several chunks that share a column, the one with the highest rank is shown. */
const RANK = { waiting: 0, gated: 1, empty: 2, read: 3, found: 3, failed: 9 };

const MIN_HATCHED_PX = 6; // on a narrower cell the hatch is a smudge

export const rank = (chunk) => RANK[chunk.state] + (chunk.state === "found" ? (chunk.confidence ?? 1) : 0);

/** Paints with the page's colours, as they are now. */
export class CellPaint {
  constructor(host) {
    const probe = host.appendChild(el("span", { hidden: true })); // a custom property is only resolved where it is used
    const colour = (name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    this.ground = Object.fromEntries(["waiting", "gated", "read", "empty", "failed"].map((state) => [state, colour(`--cell-${state}`)]));
    this.mark = Object.fromEntries(["gated", "empty", "failed"].map((state) => [state, colour(`--cell-${state}-mark`)]));
    this.confidence = [1, 2, 3, 4, 5].map((step) => colour(`--confidence-${step}`));
    this.accent = colour("--accent");
    this.ink = colour("--ink");
    this.font = getComputedStyle(probe).fontFamily;
    probe.remove();
  }

  /** One cell in the rectangle. */
  cell(context, chunk, x, y, width, height) {
    const { state } = chunk;
    const radius = width >= 10 ? 2 : 0;
    block(context, this.ground[state] ?? this.ground.waiting, x, y, width, height, radius);
    if (state === "found") {
      const step = Math.min(5, Math.max(1, Math.round(chunk.confidence ?? 1)));
      const tall = height * (0.28 + 0.18 * (step - 1));
      block(context, this.confidence[step - 1], x, y + height - tall, width, tall, radius);
    }
    const pattern = { empty: width < MIN_HATCHED_PX ? stripes : hatch, failed: cross, gated: dots }[state];
    pattern?.(context, this.mark[state], x, y, width, height);
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
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let start = x - height - ((x - height) % 5); start < x + width; start += 5) {
    context.moveTo(start, y + height);
    context.lineTo(start + height, y);
  }
  context.stroke();
  context.restore();
}

/** What the hatch is on a cell too narrow for it: what was read must differ from what was not at any width. */
function stripes(context, colour, x, y, width, height) {
  context.fillStyle = colour;
  for (let top = y + 2; top < y + height; top += 5) context.fillRect(x, top, width, 1);
}

function cross(context, colour, x, y, width, height) {
  const reach = Math.min(width, height) / 2 - 2;
  if (reach < 2) return;
  const [cx, cy, arm] = [x + width / 2, y + height / 2, Math.min(reach, 6)];
  context.strokeStyle = colour;
  context.lineWidth = 1.75;
  context.stroke(new Path2D(`M${cx - arm} ${cy - arm}l${2 * arm} ${2 * arm}m0 ${-2 * arm}l${-2 * arm} ${2 * arm}`));
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
