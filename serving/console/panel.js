// A titled part of the page, and the three things any part may have to say instead of its content.

import { el, put, setText } from "./dom.js";

let serial = 0;

/** A section labelled by its heading. `section.body` takes the content, `section.aside` what stands beside the title. */
export function panel(title, { level = 2, className = "" } = {}) {
  const id = `panel-${(serial += 1)}`;
  const body = el("div", { class: "panel-body" });
  const aside = el("div", { class: "panel-aside" });
  const heading = el(`h${level}`, { id }, title);
  const section = el("section", { class: `panel ${className}`, "aria-labelledby": id },
    el("div", { class: "panel-head" }, heading, aside), body);
  return Object.assign(section, { body, aside, heading });
}

export const emptyNote = (text) => el("p", { class: "empty" }, text);
export const loadingNote = (text = "Loading…") => el("p", { class: "loading", role: "status" }, text);

/** What went wrong, with a way to try again if there is one. */
export function errorNote(error, retry = null) {
  const again = retry && el("button", { type: "button", class: "quiet", onclick: retry }, "Try again");
  return el("div", { class: "error", role: "alert" }, el("p", {}, error?.message ?? String(error)), again);
}

/** Put into `host` what `work` gives; a note until then, and after a failure the reason with a way to try again. */
export async function load(host, words, work) {
  put(host, loadingNote(words));
  try {
    put(host, await work());
  } catch (error) {
    if (error.name !== "AbortError") put(host, errorNote(error, () => load(host, words, work)));
  }
}

/** Pressed twice it deletes; `what` is said to screen readers. On failure the note goes beside it. */
export function deleteButton(what, remove) {
  const press = button("Delete", async () => {
    if (press.textContent === "Delete") return setText(press, "Really delete?");
    press.disabled = true;
    try {
      await remove();
    } catch (error) {
      press.replaceWith(errorNote(error));
    }
  }, "link delete");
  press.title = `Delete ${what}`;
  press.addEventListener("blur", () => setText(press, "Delete"));
  return press;
}

export function button(label, onclick, className = "quiet") {
  return el("button", { type: "button", class: className, onclick }, label);
}
