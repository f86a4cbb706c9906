// Documents, a question about them, the kind of work and its limits, as fields; and as the body that the gateway takes.

import { DocumentsPanel } from "./documents.js";
import { el, put, toggle } from "./dom.js";
import { TASKS, taskName } from "./format.js";
import { errorNote, loadingNote, panel } from "./panel.js";
import { strategyName } from "./strategies.js";

export class QuestionForm {
  /**
   * `onEdit()` when anything was edited, `onSubmit()` by Enter or the submit button among `actions`. `fields` are the
   * view's own; `withStrategy` is false where the question goes to several strategies.
   */
  constructor(api, { title, fields = null, actions, withStrategy = true, onEdit = () => {}, onSubmit }) {
    this.api = api;
    this.steps = new Map();
    const edited = () => (put(this.status), onEdit());
    this.documents = new DocumentsPanel(api, { onChoice: edited });
    this.question = el("textarea", { id: "question", rows: "3", required: true, placeholder: "What do you want to know?" });
    this.task = el("select", { id: "task" }, TASKS.map((task) => el("option", { value: task }, taskName(task))));
    this.choices = el("textarea", { id: "choices", rows: "4", placeholder: "One option per line" });
    this.choicesField = labelled("Options", this.choices);
    this.strategy = el("select", { id: "strategy", onchange: () => this.#offerSteps() });
    this.chunkTokens = el("input", { id: "chunk-tokens", type: "number", min: "64", step: "1", placeholder: "automatic" });
    this.maxTokens = el("input", { id: "max-tokens", type: "number", min: "1", step: "1", placeholder: "no limit" });
    this.maxMinutes = el("input", { id: "max-minutes", type: "number", min: "1", step: "1", placeholder: "no limit" });
    this.pauseBefore = el("select", { id: "pause-before" });
    this.status = el("div", { class: "form-status" });
    const form = el("form", { novalidate: true, oninput: edited, onchange: edited, onsubmit: (event) => (event.preventDefault(), onSubmit()) },
      labelled("Question", this.question),
      el("div", { class: "field-row" }, labelled("Task", this.task), withStrategy && labelled("Strategy", this.strategy)),
      this.choicesField,
      el("details", { class: "more" }, el("summary", {}, "Limits and pauses"),
        el("div", { class: "field-row" }, labelled("Tokens per chunk", this.chunkTokens), labelled("Max. tokens", this.maxTokens), labelled("Max. minutes", this.maxMinutes), withStrategy && labelled("Pause before step", this.pauseBefore))),
      fields, this.status, el("div", { class: "actions" }, actions));
    this.task.addEventListener("change", () => this.#showChoices());
    this.host = panel(title);
    put(this.host.body, form);
    this.setStrategies([{ name: "auto", steps: [] }]);
    this.#showChoices();
  }

  /** Strategies as {name, steps}. */
  setStrategies(strategies) {
    const chosen = this.strategy.value;
    this.steps = new Map(strategies.map(({ name, steps }) => [name, steps]));
    put(this.strategy, strategies.map(({ name }) => el("option", { value: name }, strategyName(name))));
    this.strategy.value = this.steps.has(chosen) ? chosen : strategies[0].name;
    this.#offerSteps();
  }

  /** Before which steps the chosen strategy can pause; the automatic one has none of its own. */
  #offerSteps() {
    const steps = this.steps.get(this.strategy.value) ?? [];
    put(this.pauseBefore, el("option", { value: "" }, steps.length ? "do not pause" : "choose a strategy first"), steps.map((step) => el("option", { value: step }, step)));
    this.pauseBefore.disabled = !steps.length;
  }

  #showChoices() {
    toggle(this.choicesField, this.task.value === "multiple_choice");
  }

  /** Fill in what a job was asked. */
  fill({ question = "", task = "question_answering", choices = [], strategy = "auto", documents = [] }) {
    this.question.value = question;
    this.task.value = task;
    this.choices.value = choices.join("\n");
    if (this.steps.has(strategy)) this.strategy.value = strategy;
    this.#offerSteps();
    this.#showChoices();
    this.documents.choose(documents.map((document) => document.file_id));
    this.question.focus();
  }

  /** The body of a job; null, with a complaint shown, if something is missing. */
  read() {
    const files = this.documents.choice;
    const question = this.question.value.trim();
    const task = this.task.value;
    const choices = task === "multiple_choice" ? this.choices.value.split("\n").map((line) => line.trim()).filter(Boolean) : null;
    if (!files.length) return this.refuse(this.documents.sending ? "The document is still being uploaded." : "Choose a document first.", document.getElementById("file-field"));
    if (!question && task !== "summarization") return this.refuse("Write a question first.", this.question);
    if (choices && choices.length < 2) return this.refuse("Give at least two options, one per line.", this.choices);
    const limits = {};
    if (this.maxTokens.value) limits.tokens = Number(this.maxTokens.value);
    if (this.maxMinutes.value) limits.wall_time_s = Number(this.maxMinutes.value) * 60;
    return {
      file_ids: files.map((file) => file.id), question: question || "Summarise the document.", task, strategy: this.strategy.value,
      ...(choices && { choices }),
      ...(this.chunkTokens.value && { options: { chunk_tokens: Number(this.chunkTokens.value) } }),
      ...(Object.keys(limits).length && { limits }),
      ...(this.pauseBefore.value && { pause_before: this.pauseBefore.value }),
    };
  }

  refuse(complaint, field = null) {
    put(this.status, errorNote(complaint));
    field?.focus();
    return null;
  }

  /** Submit one job for each body, then go to the address that `place(ids)` makes of them. */
  async submit(bodies, place) {
    put(this.status, loadingNote("Submitting…"));
    try {
      const ids = [];
      for (const body of bodies) ids.push((await this.api.submit(body)).id);
      location.hash = place(ids);
    } catch (error) {
      this.refuse(error);
    }
  }
}

function labelled(words, field) {
  return el("div", { class: "field" }, el("label", { for: field.id }, words), field);
}
