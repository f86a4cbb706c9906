// Words for screen readers, politely and not more often than they can be listened to.

import { setText } from "./dom.js";

const MIN_GAP_MS = 8_000;

let last = 0;
let waiting = null;

/** Say it now (`urgent`), or when the last words are old enough; newer words replace waiting ones. */
export function announce(text, urgent = false) {
  clearTimeout(waiting);
  const waitMs = urgent ? 0 : Math.max(0, last + MIN_GAP_MS - Date.now());
  waiting = setTimeout(() => {
    last = Date.now();
    setText(document.getElementById("announcer"), text);
  }, waitMs);
}
