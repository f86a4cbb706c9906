// The first view: choose documents, write a question, see the plan, ask.

import { DocumentsPanel, pagesOf } from "./documents.js";
import { el, put, toggle } from "./dom.js";
import { jobPlace } from "./location.js";
import { button, errorNote, loadingNote, panel } from "./panel.js";
import { planView } from "./plan.js";
import { QuestionForm } from "./question_form.js";
import { RecentJobs } from "./recent_jobs.js";
import { listStrategies } from "./strategies.js";

export class AskView {
  constructor(api) {
    this.api = api;
    this.files = [];
    this.documents = new DocumentsPanel(api, { onChoice: (files) => ((this.files = files), this.#edited()) });
    this.form = new QuestionForm({ onChange: () => this.#edited() });
    this.recent = new RecentJobs(api);
    this.planPanel = panel("Plan", { className: "plan-panel" });
    toggle(this.planPanel, false);
    this.status = el("div", { class: "form-status" });
    const asking = panel("Ask");
    const form = el("form", { novalidate: true }, this.form.host, this.status,
      el("div", { class: "actions" }, el("button", { type: "submit", class: "primary" }, "Ask"), button("Plan", () => this.#plan())));
    form.addEventListener("submit", (event) => (event.preventDefault(), this.#ask()));
    put(asking.body, form);
    this.host = el("div", { class: "ask-view" }, el("h1", { class: "unseen" }, "Ask about a document"),
      el("div", { class: "ask-left" }, this.documents.host), el("div", { class: "ask-right" }, asking, this.planPanel, this.recent.host));
  }

  async open({ job }) {
    this.recent.load();
    const listed = listStrategies(this.api).catch(() => [{ name: "auto", steps: [] }]);
    await this.documents.load();
    this.form.setStrategies(await listed);
    if (job) await this.#fillFrom(job);
  }

  close() {
    this.planning?.abort();
  }

  async #fillFrom(id) {
    try {
      const job = await this.api.job(id);
      this.form.fill(job);
      this.documents.choose((job.documents ?? []).map((document) => document.file_id));
      this.form.question.focus();
    } catch (error) {
      put(this.status, errorNote(error));
    }
  }

  #edited() {
    put(this.status);
    if (this.planPanel.hidden) return;
    this.planning?.abort();
    this.planPanel.classList.add("stale");
    put(this.planPanel.aside, el("span", { class: "hint" }, "Edited since; plan again"));
  }

  #read() {
    const { body, complaint, field } = this.form.read(this.files);
    if (!complaint) return body;
    put(this.status, errorNote(this.documents.sending && !field ? "The document is still being uploaded." : complaint));
    (field ?? document.getElementById("file-field"))?.focus();
    return null;
  }

  async #plan() {
    const body = this.#read();
    if (!body) return;
    this.planning?.abort();
    this.planning = new AbortController();
    const pages = this.files.reduce((sum, file) => sum + pagesOf(file), 0);
    toggle(this.planPanel, true);
    this.planPanel.classList.remove("stale");
    put(this.planPanel.aside);
    put(this.planPanel.body, loadingNote("Counting tokens…"));
    try {
      const estimate = await this.api.estimate(body, this.planning.signal);
      const run = button("Run", () => this.#ask(), "primary");
      put(this.planPanel.body, planView(estimate, pages), el("div", { class: "actions" }, run));
      run.focus({ preventScroll: true });
      this.planPanel.scrollIntoView({ block: "nearest" });
    } catch (error) {
      if (error.name !== "AbortError") put(this.planPanel.body, errorNote(error, () => this.#plan()));
    }
  }

  async #ask() {
    const body = this.#read();
    if (!body) return;
    put(this.status, loadingNote("Submitting…"));
    try {
      const job = await this.api.submit(body);
      location.hash = jobPlace(job.id);
    } catch (error) {
      put(this.status, errorNote(error));
    }
  }
}
