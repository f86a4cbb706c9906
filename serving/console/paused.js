// A paused run: the state that its next step begins from, to be read, changed and handed back.

import { el, put, setText, toggle } from "./dom.js";
import { button, errorNote, panel } from "./panel.js";

export class PausedPanel {
  step = "";
  written = "";

  /** `onResume(state)` lets the run go on; null leaves the state as it is. It rejects with the reason against that. */
  constructor({ onResume }) {
    this.onResume = onResume;
    this.host = panel("Paused", { className: "paused-panel" });
    this.about = el("p", {});
    this.field = el("textarea", { id: "paused-state", rows: "16", spellcheck: "false", "aria-label": "The state, as JSON" });
    this.trouble = el("div", {});
    this.resume = button("Resume", () => this.#resume(), "primary");
    put(this.host.body, this.about, this.field, el("div", { class: "actions" }, this.resume), this.trouble);
    toggle(this.host, false);
  }

  /** Shown while the run is paused, and when an edited state was refused. What a person is writing stays. */
  update(run) {
    const refused = run.state === "failed" && run.error?.type === "StateInvalid";
    toggle(this.host, Boolean(run.paused) && (run.state === "paused" || refused));
    if (this.host.hidden) return;
    const { step, before, state } = run.paused;
    const written = JSON.stringify(state, null, 2);
    if (this.step === step && this.written === written) return;
    Object.assign(this, { step, written });
    this.field.value = written;
    setText(this.about, `Before step ${step}, ${before}. Edit the findings or leave them as they are, then resume.`);
  }

  async #resume() {
    this.resume.disabled = true;
    put(this.trouble);
    try {
      await this.onResume(this.field.value === this.written ? null : JSON.parse(this.field.value));
    } catch (error) {
      put(this.trouble, errorNote(error));
    } finally {
      this.resume.disabled = false;
    }
  }
}
