// Questions that were asked before, newest first.

import { storedKey } from "./api.js";
import { el } from "./dom.js";
import { brief, since } from "./format.js";
import { jobPlace } from "./location.js";
import { deleteButton, emptyNote, load, panel } from "./panel.js";
import { TERMINAL } from "./run_state.js";
import { strategyName } from "./strategies.js";

export class RecentJobs {
  constructor(api) {
    this.api = api;
    this.host = panel("Recent questions", { className: "recent" });
  }

  load() {
    return load(this.host.body, "Loading…", async () => {
      const jobs = (await this.api.jobs()).filter((job) => job.kind !== "chat" && job.question);
      return jobs.length ? el("ul", { class: "jobs" }, jobs.map((job) => this.#row(job))) : emptyNote(storedKey() ? "No questions yet with this key." : "No questions yet.");
    });
  }

  #row(job) {
    const remove = TERMINAL.has(job.state) && deleteButton(brief(job.question, 60), async () => (await this.api.deleteJob(job.id), this.load()));
    return el("li", {}, el("a", { href: jobPlace(job.id) }, brief(job.question, 140)),
      el("span", { class: "hint" }, stateBadge(job.state), ` ${strategyName(job.strategy)} · ${since(job.created_at)} `, remove));
  }
}

export const stateBadge = (state) => el("span", { class: `badge state-${state}` }, state);
