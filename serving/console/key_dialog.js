// Asks for the API key. It stays in this tab's session storage and is gone when the tab is closed.

import { storedKey, storeKey } from "./api.js";
import { el, put, setText } from "./dom.js";

/** Resolves to true if a key was given, false if the user would rather not. */
export function askForKey(wasRefused = false) {
  const why = wasRefused ? "The gateway did not accept this key." : "The gateway asks for an API key.";
  return open(why);
}

/** Look at, change or forget the key. */
export const editKey = () => open(storedKey() ? "A key is in use in this tab." : "No key is in use.");

function open(why) {
  return new Promise((resolve) => {
    const field = el("input", {
      id: "key-field", type: "password", autocomplete: "off", spellcheck: "false", placeholder: "lf_…", value: storedKey(),
    });
    const dialog = el("dialog", { class: "key-dialog", "aria-labelledby": "key-title" });
    const close = (given) => {
      dialog.close();
      dialog.remove();
      resolve(given);
    };
    const form = el("form", {},
      el("h2", { id: "key-title" }, "API key"),
      el("p", { role: "status" }, why),
      el("label", { for: "key-field" }, "Key"),
      field,
      el("p", { class: "hint" }, "Kept in this tab only, and forgotten when it closes. Keys are made with ",
        el("code", {}, "longfold keys create"), "."),
      el("div", { class: "actions" },
        el("button", { type: "submit", class: "primary" }, "Use this key"),
        storedKey() && el("button", { type: "button", class: "quiet", onclick: () => (storeKey(""), close(false)) }, "Forget it"),
        el("button", { type: "button", class: "quiet", onclick: () => close(false) }, "Cancel")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const key = field.value.trim();
      if (key) storeKey(key);
      close(key !== "");
    });
    dialog.addEventListener("cancel", (event) => (event.preventDefault(), close(false)));
    put(dialog, form);
    document.body.append(dialog);
    dialog.showModal();
    field.select();
  });
}

/** The button that shows whether a key is in use. */
export function showKeyState(button) {
  setText(button, storedKey() ? "API key ✓" : "API key");
  button.setAttribute("aria-label", storedKey() ? "API key: in use" : "API key: none");
}
