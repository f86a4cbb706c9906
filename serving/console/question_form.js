// The question, the kind of work and the strategy, as fields; and as the body that the gateway takes.

import { el, put, toggle } from "./dom.js";
import { TASKS, taskName } from "./format.js";
import { strategyName } from "./strategies.js";

export class QuestionForm {
  /** `onChange()` when anything was edited. `strategies` are names; without a choice of one, `strategy` is left out. */
  constructor({ onChange, withStrategy = true }) {
    this.question = el("textarea", { id: "question", rows: "3", required: true, placeholder: "What do you want to know?" });
    this.task = el("select", { id: "task" }, TASKS.map((task) => el("option", { value: task }, taskName(task))));
    this.choices = el("textarea", { id: "choices", rows: "4", placeholder: "One option per line" });
    this.choicesField = labelled("Options", this.choices);
    this.strategy = el("select", { id: "strategy" }, el("option", { value: "auto" }, strategyName("auto")));
    this.chunkTokens = el("input", { id: "chunk-tokens", type: "number", min: "64", step: "1", placeholder: "the model's own" });
    this.mostTokens = el("input", { id: "most-tokens", type: "number", min: "1", step: "1", placeholder: "no limit" });
    this.mostMinutes = el("input", { id: "most-minutes", type: "number", min: "1", step: "1", placeholder: "no limit" });
    this.pauseBefore = el("input", { id: "pause-before", type: "text", maxlength: "64", placeholder: "e.g. reduce" });
    this.host = el("div", { class: "question-form" },
      labelled("Question", this.question),
      el("div", { class: "field-row" }, labelled("Task", this.task), withStrategy && labelled("Strategy", this.strategy)),
      this.choicesField,
      el("details", { class: "more" }, el("summary", {}, "Limits and pauses"),
        el("div", { class: "field-row" }, labelled("Tokens per chunk", this.chunkTokens), labelled("Tokens at most", this.mostTokens), labelled("Minutes at most", this.mostMinutes), withStrategy && labelled("Pause before step", this.pauseBefore))));
    toggle(this.choicesField, false);
    this.task.addEventListener("change", () => toggle(this.choicesField, this.task.value === "multiple_choice"));
    this.host.addEventListener("input", onChange);
    this.host.addEventListener("change", onChange);
  }

  setStrategies(names) {
    const chosen = this.strategy.value;
    put(this.strategy, names.map((name) => el("option", { value: name }, strategyName(name))));
    this.strategy.value = names.includes(chosen) ? chosen : names[0];
  }

  /** Fill in what a job was asked. */
  fill({ question = "", task = "question_answering", choices = [], strategy = "auto" }) {
    this.question.value = question;
    this.task.value = task;
    this.choices.value = choices.join("\n");
    if ([...this.strategy.options].some((option) => option.value === strategy)) this.strategy.value = strategy;
    toggle(this.choicesField, task === "multiple_choice");
  }

  /** The body of a job for these files, or a complaint: {body} or {complaint, field}. */
  read(files) {
    const question = this.question.value.trim();
    if (!files.length) return { complaint: "Choose a document first.", field: null };
    const task = this.task.value;
    if (!question && task !== "summarization") return { complaint: "Write a question first.", field: this.question };
    const body = { file_ids: files.map((file) => file.id), question: question || "Summarise the document.", task, strategy: this.strategy.value };
    if (task === "multiple_choice") {
      body.choices = this.choices.value.split("\n").map((line) => line.trim()).filter(Boolean);
      if (body.choices.length < 2) return { complaint: "Give at least two options, one per line.", field: this.choices };
    }
    if (this.chunkTokens.value) body.options = { chunk_tokens: Number(this.chunkTokens.value) };
    const limits = {};
    if (this.mostTokens.value) limits.tokens = Number(this.mostTokens.value);
    if (this.mostMinutes.value) limits.wall_time_s = Number(this.mostMinutes.value) * 60;
    if (Object.keys(limits).length) body.limits = limits;
    const step = this.pauseBefore.value.trim();
    if (step) body.pause_before = step;
    return { body };
  }
}

function labelled(words, field) {
  return el("div", { class: "field" }, el("label", { for: field.id }, words), field);
}
