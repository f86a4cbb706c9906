// Questions that were asked before, newest first.

import { storedKey } from "./api.js";
import { el, put } from "./dom.js";
import { brief, since } from "./format.js";
import { jobPlace } from "./location.js";
import { deleteButton, emptyNote, errorNote, loadingNote, panel } from "./panel.js";
import { TERMINAL } from "./run_state.js";
import { strategyName } from "./strategies.js";

export class RecentJobs {
  constructor(api) {
    this.api = api;
    this.host = panel("Recent questions", { className: "recent" });
  }

  async load() {
    put(this.host.body, loadingNote());
    try {
      const jobs = (await this.api.jobs()).filter((job) => job.kind !== "chat" && job.question);
      put(this.host.body, jobs.length ? el("ul", { class: "jobs" }, jobs.map((job) => this.#row(job))) : emptyNote(storedKey() ? "No questions yet with this key." : "No questions yet."));
    } catch (error) {
      put(this.host.body, errorNote(error, () => this.load()));
    }
  }

  #row(job) {
    const remove = TERMINAL.has(job.state) && deleteButton(brief(job.question, 60), async () => (await this.api.deleteJob(job.id), this.load()));
    return el("li", {}, el("a", { href: jobPlace(job.id) }, brief(job.question, 140)),
      el("span", { class: "hint" }, stateBadge(job.state), ` ${strategyName(job.strategy)} · ${since(job.created_at)} `, remove));
  }
}

export const stateBadge = (state) => el("span", { class: `badge state-${state}` }, state);
