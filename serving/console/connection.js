// Whether events arrive: live, connecting, lost (with a countdown and a button), or not needed any more.

import { el, put } from "./dom.js";
import { button } from "./panel.js";

export class Connection {
  constructor(reconnect) {
    this.reconnect = reconnect;
    this.host = el("div", { class: "connection", role: "status" });
  }

  show({ state, retryAtMs, error, failures }) {
    clearInterval(this.counting);
    if (state === "connecting" && failures > 0) return; // stays "lost" until it is live
    this.host.dataset.state = state;
    if (state === "lost") {
      const count = el("span", { "aria-hidden": "true" });
      const tick = () => (count.textContent = ` Trying again in ${Math.max(0, Math.ceil((retryAtMs - Date.now()) / 1000))} s.`);
      tick();
      this.counting = setInterval(tick, 500);
      put(this.host, el("strong", {}, "Connection lost."), count, " ", button("Try now", this.reconnect, "link"));
    } else if (state === "refused") put(this.host, el("strong", {}, "No live updates: "), error?.message ?? "the gateway refused them.");
    else put(this.host, { connecting: "Connecting…", live: "Live", ended: "" }[state]);
  }
}
