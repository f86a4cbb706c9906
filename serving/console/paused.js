// Where a run waits for a person: the state its next step begins from, to be read, changed and handed back.

import { el, put, setText, toggle } from "./dom.js";
import { button, errorNote, panel } from "./panel.js";

export class PausedPanel {
  /** `onResume(state)` lets the run go on; null leaves the state as it is. It rejects with what speaks against that. */
  constructor({ onResume }) {
    this.onResume = onResume;
    this.host = panel("Waiting for you", { className: "paused-panel" });
    this.told = el("p", {});
    this.field = el("textarea", { id: "paused-state", rows: "16", spellcheck: "false", "aria-label": "The state, as JSON" });
    this.trouble = el("div", {});
    this.going = button("Go on", () => this.#goOn(), "primary");
    put(this.host.body, this.told, this.field, el("div", { class: "actions" }, this.going), this.trouble);
    toggle(this.host, false);
  }

  /** Shown while the run waits, and when what was written did not fit. What a person is writing stays. */
  update(run) {
    const refused = run.state === "failed" && run.error?.type === "StateInvalid";
    toggle(this.host, Boolean(run.paused) && (run.state === "paused" || refused));
    if (this.host.hidden) return;
    const { step, before, state } = run.paused;
    const written = JSON.stringify(state, null, 2);
    if (this.step === step && this.written === written) return;
    Object.assign(this, { step, written });
    this.field.value = written;
    setText(this.told, `Before step ${step}, ${before}. Change what was found, or leave it, and let the run go on.`);
  }

  async #goOn() {
    this.going.disabled = true;
    put(this.trouble);
    try {
      await this.onResume(this.field.value === this.written ? null : JSON.parse(this.field.value));
    } catch (error) {
      put(this.trouble, errorNote(error));
    } finally {
      this.going.disabled = false;
    }
  }
}
