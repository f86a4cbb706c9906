// A comparison as CSV and as Markdown, and how a text made in the page reaches the user as a file.

import { el } from "./dom.js";

const KEEP_ADDRESS_MS = 10_000;

/** RFC 4180. A cell that a spreadsheet would take for a formula gets an apostrophe in front. */
export function toCsv(rows) {
  return `${rows.map((row) => row.map(csvCell).join(",")).join("\r\n")}\r\n`;
}

function csvCell(value) {
  let text = String(value ?? "");
  if (typeof value !== "number" && /^\s*[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A table; cells cannot break out of it or become markup. */
export function toMarkdown(title, rows) {
  const [head, ...body] = rows.map((row) => row.map(markdownCell));
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [`# ${markdownCell(title)}`, "", line(head), line(head.map(() => "---")), ...body.map(line), ""].join("\n");
}

function markdownCell(value) {
  return String(value ?? "").replace(/[\\`*_{}[\]<>|#!]/g, "\\$&").replace(/\s*[\r\n]+\s*/g, " ").trim();
}

export function saveFile(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), KEEP_ADDRESS_MS);
}
