// What a run cost: calls, tokens and time by stage, what the prefix cache and the journal saved.

import { el, put } from "./dom.js";
import { duration, number, percent } from "./format.js";
import { emptyNote, panel } from "./panel.js";
import { stageName } from "./progress.js";
import { TERMINAL } from "./run_state.js";

const COLUMNS = { calls: "Calls", journal: "Reused", prompt: "Prompt", cached: "Cached", output: "Output" };

export class UsagePanel {
  constructor() {
    this.host = panel("Tokens and time", { className: "usage-panel" });
    this.shown = "";
  }

  update(run, result) {
    const rows = result ? finalRows(result) : liveRows(run);
    const now = JSON.stringify(rows);
    if (now === this.shown) return;
    this.shown = now;
    put(this.host.body, rows.length ? [table(rows, result?.total_seconds ?? null), savings(rows)] : emptyNote(TERMINAL.has(run.state) ? "No call was completed." : "No call is completed yet."));
  }
}

function finalRows(result) {
  const usage = result.usage_by_stage ?? result.usage ?? {};
  return Object.entries(usage).map(([stage, used]) => ({
    stage, calls: used.calls, journal: used.journal_calls, prompt: used.prompt_tokens, cached: used.cached_tokens,
    output: used.output_tokens, seconds: result.seconds_by_stage?.[stage] ?? used.seconds ?? null,
  }));
}

function liveRows(run) {
  return [...run.stages.values()].filter((stage) => stage.done > 0).map((stage) => ({
    stage: stage.name, calls: stage.done - stage.journal, journal: stage.journal, prompt: stage.prompt, cached: stage.cached,
    output: stage.output, seconds: stage.lastAt - stage.firstAt,
  }));
}

export function sumUsage(rows) {
  const sum = { calls: 0, journal: 0, prompt: 0, cached: 0, output: 0 };
  for (const row of rows) for (const name of Object.keys(sum)) sum[name] += row[name] ?? 0;
  return sum;
}

export const usageRows = finalRows;

function table(rows, totalSeconds) {
  const longest = Math.max(...rows.map((row) => row.seconds ?? 0), 1e-9);
  const sum = sumUsage(rows);
  const columns = Object.keys(COLUMNS).filter((name) => name !== "journal" || sum.journal > 0); // a phone has room for one less
  const cells = (row) => columns.map((name) => el("td", {}, number(row[name])));
  return el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Tokens and time by stage" },
    el("table", { class: "usage" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Stage"), columns.map((name) => el("th", { scope: "col" }, COLUMNS[name])), el("th", { scope: "col", class: "time" }, "Time"))),
      el("tbody", {}, rows.map((row) => el("tr", {}, el("th", { scope: "row" }, stageName(row.stage)), cells(row), timeCell(row.seconds, longest)))),
      el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "All"), cells(sum), el("td", { class: "time" }, totalSeconds === null ? "" : duration(totalSeconds))))));
}

function timeCell(seconds, longest) {
  const bar = el("span", { class: "time-bar", "aria-hidden": "true" });
  bar.style.width = `${Math.round(((seconds ?? 0) / longest) * 100)}%`;
  return el("td", { class: "time" }, seconds === null ? "–" : duration(seconds), bar);
}

function savings(rows) {
  const sum = sumUsage(rows);
  const said = [
    sum.cached > 0 && `${percent(sum.cached / Math.max(1, sum.prompt))} of the prompt tokens were found in the prefix cache.`,
    sum.journal > 0 && `${number(sum.journal)} calls were reused from an earlier run.`,
    "Stages overlap, so their times do not add up.",
  ];
  return el("p", { class: "hint" }, said.filter(Boolean).join(" "));
}
