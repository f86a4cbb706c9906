// A button that copies an address. Pages served over plain HTTP have no clipboard, so a selection stands in for it.

import { el } from "./dom.js";

const SHOWN_MS = 1_600;

/** `address()` is asked when the button is pressed. */
export function copyButton(label, address, className = "quiet") {
  const face = el("span", {}, label);
  const press = el("button", { type: "button", class: className }, face);
  press.addEventListener("click", async () => {
    const copied = await copy(address());
    face.textContent = copied ? "Copied" : "Not copied";
    setTimeout(() => (face.textContent = label), SHOWN_MS);
  });
  return press;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text) {
  const field = el("textarea", { class: "unseen", readonly: true, value: text });
  const before = /** @type {HTMLElement} */ (document.activeElement);
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  before?.focus();
  return copied;
}
