// The question, the kind of work and the strategy, as fields; and as the body that the gateway takes.

import { el, put, toggle } from "./dom.js";
import { TASKS, taskName } from "./format.js";
import { strategyName } from "./strategies.js";

export class QuestionForm {
  /** `onChange()` when anything was edited; `withStrategy` false for a form that is asked of several strategies. */
  constructor({ onChange, withStrategy = true }) {
    this.steps = new Map();
    this.question = el("textarea", { id: "question", rows: "3", required: true, placeholder: "What do you want to know?" });
    this.task = el("select", { id: "task" }, TASKS.map((task) => el("option", { value: task }, taskName(task))));
    this.choices = el("textarea", { id: "choices", rows: "4", placeholder: "One option per line" });
    this.choicesField = labelled("Options", this.choices);
    this.strategy = el("select", { id: "strategy", onchange: () => this.#offerSteps() });
    this.chunkTokens = el("input", { id: "chunk-tokens", type: "number", min: "64", step: "1", placeholder: "automatic" });
    this.maxTokens = el("input", { id: "max-tokens", type: "number", min: "1", step: "1", placeholder: "no limit" });
    this.maxMinutes = el("input", { id: "max-minutes", type: "number", min: "1", step: "1", placeholder: "no limit" });
    this.pauseBefore = el("select", { id: "pause-before" });
    this.host = el("div", { class: "question-form" },
      labelled("Question", this.question),
      el("div", { class: "field-row" }, labelled("Task", this.task), withStrategy && labelled("Strategy", this.strategy)),
      this.choicesField,
      el("details", { class: "more" }, el("summary", {}, "Limits and pauses"),
        el("div", { class: "field-row" }, labelled("Tokens per chunk", this.chunkTokens), labelled("Max. tokens", this.maxTokens), labelled("Max. minutes", this.maxMinutes), withStrategy && labelled("Pause before step", this.pauseBefore))));
    this.setStrategies([{ name: "auto", steps: [] }]);
    toggle(this.choicesField, false);
    this.task.addEventListener("change", () => toggle(this.choicesField, this.task.value === "multiple_choice"));
    this.host.addEventListener("input", onChange);
    this.host.addEventListener("change", onChange);
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

  /** Fill in what a job was asked. */
  fill({ question = "", task = "question_answering", choices = [], strategy = "auto" }) {
    this.question.value = question;
    this.task.value = task;
    this.choices.value = choices.join("\n");
    if (this.steps.has(strategy)) {
      this.strategy.value = strategy;
      this.#offerSteps();
    }
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
    if (this.maxTokens.value) limits.tokens = Number(this.maxTokens.value);
    if (this.maxMinutes.value) limits.wall_time_s = Number(this.maxMinutes.value) * 60;
    if (Object.keys(limits).length) body.limits = limits;
    if (this.pauseBefore.value) body.pause_before = this.pauseBefore.value;
    return { body };
  }
}

function labelled(words, field) {
  return el("div", { class: "field" }, el("label", { for: field.id }, words), field);
}
