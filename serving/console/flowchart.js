// A plan's graph as a drawing. Of Mermaid only what plans use: `flowchart LR`, chains of `a --> b[label]`, arrows with
// words on them (`-- words -->`, dashed `-. words .->`) and a step that leads to itself.

import { el, svg } from "./dom.js";

const HIGH = 34;
const PADDING = 14;
const GAP = 30;
const LANE_GAP = 14;
const BEND = 20; // room for an arrow that goes around a box
const ARROW = /\s*(?:--\s+(?<plain>[^>]*?)\s+-->|-\.\s*(?<dashed>[^>]*?)\s*\.->|(?<dots>-\.->)|-->(?:\|(?<bars>[^|]*)\|)?)\s*/u;

/** {nodes: Map id → label, edges: [{from, to, words, dashed}]}, or null if the text is something else. */
export function parseFlowchart(text) {
  const [head, ...lines] = String(text ?? "").split(/\n|;/).map((line) => line.trim()).filter(Boolean);
  if (!/^(flowchart|graph)\b/.test(head ?? "")) return null;
  const chart = { nodes: new Map(), edges: [] };
  return lines.every((line) => readChain(line, chart)) && chart.nodes.size ? chart : null;
}

function readChain(line, { nodes, edges }) {
  let rest = line;
  let from = null;
  let arrow = null;
  for (;;) {
    const match = ARROW.exec(rest);
    const to = readNode(match ? rest.slice(0, match.index) : rest, nodes);
    if (to === null) return false;
    if (from !== null) edges.push({ from, to, ...arrow });
    if (!match) return true;
    const { plain, dashed, dots, bars } = match.groups;
    arrow = { words: plain ?? dashed ?? bars ?? "", dashed: dashed !== undefined || dots !== undefined };
    [from, rest] = [to, rest.slice(match.index + match[0].length)];
  }
}

function readNode(text, nodes) {
  const match = /^([\p{L}\p{N}_]+)\s*(?:[[({]+"?(.*?)"?[\])}]+)?$/u.exec(text.trim());
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
  const around = chart.edges.some(({ from, to }) => goesAround(boxes.get(from), boxes.get(to))) ? BEND : 0;
  const high = Math.max(...all.map((box) => box.y + HIGH)) + around + 2;
  const wide = Math.max(...all.map((box) => box.x + box.width)) + 2;
  const told = chart.edges.map(({ from, to, words }) => `${chart.nodes.get(from)} to ${chart.nodes.get(to)}${words ? ` (${words})` : ""}`).join("; ");
  return svg("svg", { class: "flowchart", width: wide, height: high, viewBox: `-1 -1 ${wide + 1} ${high}`, role: "img", "aria-label": `Stages: ${told}` },
    chart.edges.map((edge) => drawEdge(edge, boxes.get(edge.from), boxes.get(edge.to))),
    [...boxes].map(([id, box]) => drawBox(chart.nodes.get(id), box)));
}

/** Columns by the longest way from a start; columns that no longer fit go on in the next row. */
function placeBoxes({ nodes, edges }, width) {
  const depth = longestWays(nodes, edges);
  const columns = [];
  for (const [id, at] of depth) (columns[at] ??= []).push(id);
  const loops = edges.some(({ from, to }) => from === to) ? BEND : 0;
  const boxes = new Map();
  let [x, y, row, lanes] = [0, loops, 0, 1];
  columns.filter(Boolean).forEach((column, at) => {
    const wide = Math.max(...column.map((id) => textWidth(nodes.get(id)))) + 2 * PADDING;
    if (x > 0 && x + wide > width) [x, y, row, lanes] = [0, y + lanes * (HIGH + LANE_GAP) + 10 + 2 * loops, row + 1, 1];
    lanes = Math.max(lanes, column.length);
    column.forEach((id, lane) => boxes.set(id, { x, y: y + lane * (HIGH + LANE_GAP), width: wide, row, column: at }));
    const spoken = edges.filter(({ from, to, words }) => words && depth.get(to) === depth.get(from) + 1 && column.includes(from));
    x += wide + Math.max(GAP, ...spoken.map(({ words }) => textWidth(words, 11) + 18));
  });
  return boxes;
}

function longestWays(nodes, edges) {
  const depth = new Map([...nodes.keys()].map((id) => [id, 0]));
  for (let round = 0; round < nodes.size; round += 1) {
    for (const { from, to } of edges) {
      if (from !== to) depth.set(to, Math.max(depth.get(to), Math.min(depth.get(from) + 1, nodes.size)));
    }
  }
  return depth;
}

const goesAround = (from, to) => from.row === to.row && to.column > from.column + 1;

function drawBox(label, box) {
  return svg("g", { class: "flow-node" },
    svg("rect", { x: box.x, y: box.y, width: box.width, height: HIGH, rx: 6 }),
    svg("text", { x: box.x + box.width / 2, y: box.y + HIGH / 2, "text-anchor": "middle", "dominant-baseline": "central" }, label));
}

function drawEdge({ words, dashed }, from, to) {
  const { way, head, at } = from === to ? loop(from) : goesAround(from, to) ? around(from, to) : from.row === to.row ? onward(from, to) : downward(from, to);
  return svg("g", { class: dashed ? "flow-edge dashed" : "flow-edge" },
    svg("path", { d: way }), svg("path", { class: "head", d: head }),
    words && svg("text", { x: at[0], y: at[1], "text-anchor": at[2] ?? "middle" }, words));
}

function onward(from, to) {
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + HIGH / 2, to.x - 1, to.y + HIGH / 2];
  const middle = (x1 + x2) / 2;
  const way = y1 === y2 ? `M${x1} ${y1}H${x2}` : `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
  return { way, head: pointing(x2, y2, "right"), at: [middle, Math.min(y1, y2) - 5] };
}

function around(from, to) {
  const [x1, x2, base] = [from.x + from.width * 0.75, to.x + to.width * 0.25, from.y + HIGH];
  const low = base + BEND;
  return { way: `M${x1} ${base}C${x1} ${low} ${x1} ${low} ${x1 + BEND} ${low}H${x2 - BEND}C${x2} ${low} ${x2} ${low} ${x2} ${base + 1}`, head: pointing(x2, base + 1, "up"), at: [(x1 + x2) / 2, low - 4] };
}

function downward(from, to) {
  const [x1, x2, y2] = [from.x + from.width / 2, to.x + to.width / 2, to.y - 1];
  const turn = from.y + HIGH + (LANE_GAP + 10) / 2;
  return { way: `M${x1} ${from.y + HIGH}V${turn}H${x2}V${y2}`, head: pointing(x2, y2, "down"), at: [(x1 + x2) / 2, turn - 4] };
}

function loop(box) {
  const [x1, x2, top] = [box.x + 14, box.x + 34, box.y];
  return { way: `M${x1} ${top}C${x1} ${top - BEND} ${x2} ${top - BEND} ${x2} ${top - 1}`, head: pointing(x2, top - 1, "down"), at: [x2 + 5, top - 6, "start"] };
}

function pointing(x, y, way) {
  const [dx, dy] = { right: [-6, 0], down: [0, -6], up: [0, 6] }[way];
  const [sx, sy] = dx ? [0, 4] : [4, 0];
  return `M${x + dx - sx} ${y + dy - sy}L${x} ${y}L${x + dx + sx} ${y + dy + sy}`;
}

let ruler = null;

function textWidth(text, size = 13) {
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}
