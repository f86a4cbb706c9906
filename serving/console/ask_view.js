// The first view: choose documents, write a question, see the plan, ask.

import { pagesOf } from "./documents.js";
import { el, put, toggle } from "./dom.js";
import { jobPlace } from "./location.js";
import { button, load, panel } from "./panel.js";
import { planView } from "./plan.js";
import { QuestionForm } from "./question_form.js";
import { RecentJobs } from "./recent_jobs.js";
import { listStrategies } from "./strategies.js";

export class AskView {
  constructor(api) {
    this.api = api;
    this.planning = new AbortController();
    this.form = new QuestionForm(api, {
      title: "Ask", onEdit: () => this.#edited(), onSubmit: () => this.#ask(),
      actions: [el("button", { type: "submit", class: "primary" }, "Ask"), button("Plan", () => this.#plan())],
    });
    this.recent = new RecentJobs(api);
    this.planPanel = panel("Plan", { className: "plan-panel" });
    toggle(this.planPanel, false);
    this.host = el("div", { class: "ask-view" }, el("h1", { class: "unseen" }, "Ask about a document"),
      el("div", { class: "ask-left" }, this.form.documents.host), el("div", { class: "ask-right" }, this.form.host, this.planPanel, this.recent.host));
  }

  async open({ job }) {
    this.recent.load();
    const strategies = listStrategies(this.api).catch(() => []);
    await this.form.documents.load();
    if ((await strategies).length) this.form.setStrategies(await strategies);
    try {
      if (job) this.form.fill(await this.api.job(job));
    } catch (error) {
      this.form.refuse(error);
    }
  }

  close() {
    this.planning.abort();
  }

  #edited() {
    if (this.planPanel.hidden) return;
    this.planning.abort();
    this.planPanel.classList.add("stale");
    put(this.planPanel.aside, el("span", { class: "hint" }, "Edited since; plan again"));
  }

  async #plan() {
    const body = this.form.read();
    if (!body) return;
    this.planning.abort();
    this.planning = new AbortController();
    toggle(this.planPanel, true);
    this.planPanel.classList.remove("stale");
    put(this.planPanel.aside);
    const run = button("Run", () => this.#ask(), "primary");
    await load(this.planPanel.body, "Counting tokens…", async () => {
      const estimate = await this.api.estimate(body, this.planning.signal);
      const pages = this.form.documents.choice.reduce((sum, file) => sum + pagesOf(file), 0);
      return [planView(estimate, pages), el("div", { class: "actions" }, run)];
    });
    run.focus({ preventScroll: true });
    this.planPanel.scrollIntoView({ block: "nearest" });
  }

  #ask() {
    const body = this.form.read();
    if (body) this.form.submit([body], ([id]) => jobPlace(id));
  }
}
