// How far a run is: a bar for each stage with N of M, what failed, what the journal knew, and when it will be done.

import { announce } from "./announce.js";
import { el, setText, toggle } from "./dom.js";
import { duration, number, percent } from "./format.js";
import { stageEta, TERMINAL } from "./run_state.js";

const ORDER = ["gate", "direct", "map", "support", "collapse", "reduce"];
const NAMES = { gate: "Gate", direct: "Read", map: "Map", support: "Check", collapse: "Collapse", reduce: "Reduce" };

export class Progress {
  constructor() {
    this.rows = new Map();
    this.list = el("ul", { class: "stages", "aria-label": "Progress by stage" });
    this.waiting = el("p", { class: "loading" }, "");
    this.host = el("div", { class: "progress" }, this.waiting, this.list);
  }

  update(run) {
    const stages = [...run.stages.values()].sort((a, b) => ORDER.indexOf(a.name) - ORDER.indexOf(b.name));
    for (const stage of stages) this.#row(stage, stages.indexOf(stage)).show(stage, TERMINAL.has(run.state));
    toggle(this.host, run.state !== "completed"); // the table of tokens and time has it all
    toggle(this.waiting, !stages.length && !TERMINAL.has(run.state));
    setText(this.waiting, run.state === "queued" ? "Waiting in the queue." : "Preparing the document.");
    if (!TERMINAL.has(run.state) && stages.length) announce(stages.map(inWords).join("; "));
  }

  #row(stage, at) {
    if (!this.rows.has(stage.name)) {
      const row = new StageRow(stage.name);
      this.rows.set(stage.name, row);
      this.list.insertBefore(row.item, this.list.children[at] ?? null);
    }
    return this.rows.get(stage.name);
  }
}

class StageRow {
  constructor(name) {
    this.fill = el("div", { class: "bar-fill" });
    this.failed = el("div", { class: "bar-failed" });
    this.bar = el("div", { class: "bar-track", role: "progressbar", "aria-label": stageName(name), "aria-valuemin": "0" }, this.fill, this.failed);
    this.count = el("span", { class: "stage-count" });
    this.note = el("span", { class: "stage-note" });
    this.item = el("li", { dataset: { stage: name } }, el("span", { class: "stage-name" }, stageName(name)), this.bar, this.count, this.note);
  }

  show(stage, over) {
    const of = stage.calls ?? (over ? stage.done : null);
    this.bar.setAttribute("aria-valuenow", String(stage.done));
    if (of !== null) this.bar.setAttribute("aria-valuemax", String(of));
    else this.bar.setAttribute("aria-valuetext", `${number(stage.done)} done`);
    this.bar.classList.toggle("unsure", of === null);
    const share = of ? stage.done / of : of === 0 || over ? 1 : 0.5;
    this.fill.style.width = `${(share * 100).toFixed(2)}%`;
    this.failed.style.width = `${of ? ((stage.failed / of) * 100).toFixed(2) : 0}%`;
    setText(this.count, of === null ? number(stage.done) : `${number(stage.done)} / ${number(of)}`);
    setText(this.note, notes(stage, over));
  }
}

export const stageName = (name) => NAMES[name] ?? name;

function notes(stage, over) {
  const eta = over ? null : stageEta(stage);
  return [
    eta !== null && `about ${duration(eta)} left`,
    stage.failed > 0 && `${number(stage.failed)} failed`,
    stage.journal > 0 && `${number(stage.journal)} reused`,
  ].filter(Boolean).join(" · ");
}

function inWords(stage) {
  return stage.calls ? `${stageName(stage.name)} ${percent(stage.done / stage.calls)}` : `${stageName(stage.name)} ${stage.done}`;
}
