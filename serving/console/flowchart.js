// A plan's graph as a drawing. Of Mermaid only what plans use: `flowchart LR` and chains of `a --> b[label]`.

import { el, svg } from "./dom.js";

const HIGH = 34;
const PADDING = 14;
const GAP = 30;
const LANE_GAP = 14;

/** {nodes: Map id → label, edges: [from, to]}, or null if the text is something else. */
export function parseFlowchart(text) {
  const [head, ...lines] = String(text ?? "").split(/\n|;/).map((line) => line.trim()).filter(Boolean);
  if (!/^(flowchart|graph)\b/.test(head ?? "")) return null;
  const nodes = new Map();
  const edges = [];
  for (const line of lines) {
    const steps = line.split(/\s*-->\s*(?:\|[^|]*\|\s*)?/);
    let before = [];
    for (const step of steps) {
      const here = step.split(/\s+&\s+/).map((part) => readNode(part, nodes));
      if (here.includes(null)) return null;
      for (const from of before) for (const to of here) edges.push([from, to]);
      before = here;
    }
  }
  return nodes.size ? { nodes, edges } : null;
}

function readNode(text, nodes) {
  const match = /^([\p{L}\p{N}_.-]+)\s*(?:[[({]+"?(.*?)"?[\])}]+)?$/u.exec(text.trim());
  if (!match) return null;
  const [, id, label] = match;
  if (label || !nodes.has(id)) nodes.set(id, label || id);
  return id;
}

/** The drawing, in rows that fit `width`; the text itself if it cannot be drawn. */
export function drawFlowchart(text, width) {
  const chart = parseFlowchart(text);
  if (!chart) return el("pre", { class: "flowchart-text" }, text);
  const boxes = placeBoxes(chart, width);
  const all = [...boxes.values()];
  const high = Math.max(...all.map((box) => box.y + HIGH)) + 2;
  const wide = Math.max(...all.map((box) => box.x + box.width)) + 2;
  const told = chart.edges.map(([from, to]) => `${chart.nodes.get(from)} to ${chart.nodes.get(to)}`).join("; ");
  return svg("svg", { class: "flowchart", width: wide, height: high, viewBox: `-1 -1 ${wide + 1} ${high}`, role: "img", "aria-label": `Stages: ${told}` },
    chart.edges.map(([from, to]) => drawEdge(boxes.get(from), boxes.get(to))),
    [...boxes].map(([id, box]) => drawBox(chart.nodes.get(id), box)));
}

/** Columns by the longest way from a start; columns that no longer fit go on in the next row. */
function placeBoxes({ nodes, edges }, width) {
  const depth = new Map([...nodes.keys()].map((id) => [id, 0]));
  for (let round = 0; round < nodes.size; round += 1) {
    for (const [from, to] of edges) if (from !== to) depth.set(to, Math.max(depth.get(to), Math.min(depth.get(from) + 1, nodes.size)));
  }
  const columns = [];
  for (const [id, at] of depth) (columns[at] ??= []).push(id);
  const boxes = new Map();
  let [x, y, row, lanes] = [0, 0, 0, 1];
  for (const column of columns.filter(Boolean)) {
    const wide = Math.max(...column.map((id) => labelWidth(nodes.get(id)))) + 2 * PADDING;
    if (x > 0 && x + wide > width) [x, y, row, lanes] = [0, y + lanes * (HIGH + LANE_GAP) + 10, row + 1, 1];
    lanes = Math.max(lanes, column.length);
    column.forEach((id, lane) => boxes.set(id, { x, y: y + lane * (HIGH + LANE_GAP), width: wide, row }));
    x += wide + GAP;
  }
  return boxes;
}

function drawBox(label, box) {
  return svg("g", { class: "flow-node" },
    svg("rect", { x: box.x, y: box.y, width: box.width, height: HIGH, rx: 6 }),
    svg("text", { x: box.x + box.width / 2, y: box.y + HIGH / 2, "text-anchor": "middle", "dominant-baseline": "central" }, label));
}

function drawEdge(from, to) {
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + HIGH / 2, to.x, to.y + HIGH / 2];
  const way = from.row === to.row
    ? (y1 === y2 ? `M${x1} ${y1}H${x2 - 1}` : `M${x1} ${y1}C${x1 + GAP / 2} ${y1} ${x2 - GAP / 2} ${y2} ${x2 - 1} ${y2}`)
    : `M${from.x + from.width / 2} ${from.y + HIGH}V${to.y - (LANE_GAP + 10) / 2}H${to.x + to.width / 2}V${to.y - 1}`;
  const head = from.row === to.row
    ? `M${x2 - 7} ${y2 - 4}L${x2 - 1} ${y2}L${x2 - 7} ${y2 + 4}`
    : `M${to.x + to.width / 2 - 4} ${to.y - 7}L${to.x + to.width / 2} ${to.y - 1}L${to.x + to.width / 2 + 4} ${to.y - 7}`;
  return svg("path", { class: "flow-edge", d: way + head });
}

let ruler = null;

function labelWidth(text) {
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = `13px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}
