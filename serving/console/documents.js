// The documents to ask about: dropped, chosen or pasted here, or sent earlier. Several can be asked about at once.

import { storedKey } from "./api.js";
import { el, put, setText } from "./dom.js";
import { brief, bytes, number, plural, shortNumber, since } from "./format.js";
import { button, deleteButton, emptyNote, errorNote, load, panel } from "./panel.js";

export class DocumentsPanel {
  /** `onChoice()` when other files are chosen. */
  constructor(api, { onChoice }) {
    this.api = api;
    this.onChoice = onChoice;
    this.files = [];
    this.chosen = new Set();
    this.host = panel("Documents");
    this.drop = this.#dropArea();
    this.uploads = el("ul", { class: "uploads" });
    this.list = el("div", { class: "files" });
    put(this.host.body, this.drop, this.#pasteArea(), this.uploads, this.list);
  }

  load() {
    return load(this.list, "Loading recent documents…", async () => {
      this.files = (await this.api.files()).filter((file) => file.purpose !== "batch" && file.status !== "error");
      this.onChoice();
      return this.#rows();
    });
  }

  /** Choose what another job was asked about; files that are gone are left out. */
  choose(ids) {
    this.chosen = new Set(ids.filter((id) => this.files.some((file) => file.id === id)));
    this.#show();
  }

  get choice() {
    return this.files.filter((file) => this.chosen.has(file.id));
  }

  get sending() {
    return this.uploads.querySelector("progress") !== null;
  }

  #dropArea() {
    const field = el("input", { type: "file", id: "file-field", class: "unseen", multiple: true });
    field.addEventListener("change", () => (this.#sendAll([...field.files]), (field.value = "")));
    const area = el("label", { class: "drop", for: "file-field" }, field,
      el("span", { class: "drop-lead" }, "Drop a document here, or ", el("span", { class: "as-link" }, "choose a file")),
      el("span", { class: "hint" }, "Text, Markdown, HTML, CSV, JSON, PDF, Office; files never leave your server"));
    for (const kind of ["dragenter", "dragover"]) area.addEventListener(kind, (event) => (event.preventDefault(), area.classList.add("over")));
    for (const kind of ["dragleave", "drop"]) area.addEventListener(kind, () => area.classList.remove("over"));
    area.addEventListener("drop", (event) => (event.preventDefault(), this.#sendAll([...event.dataTransfer.files])));
    return area;
  }

  #pasteArea() {
    const field = el("textarea", { id: "paste-field", rows: "5", "aria-label": "Text to ask about", placeholder: "Paste text" });
    const send = button("Use this text", () => {
      if (!field.value.trim()) return field.focus();
      const name = `${brief(field.value, 40).replace(/[^\p{L}\p{N} _-]+/gu, "").trim() || "Pasted text"}.txt`;
      this.#send(new File([field.value], name, { type: "text/plain" }));
      field.value = "";
      details.open = false;
    });
    const details = el("details", { class: "paste" }, el("summary", {}, "Paste text instead"), field, send);
    return details;
  }

  #sendAll(files) {
    for (const file of files) this.#send(file);
  }

  async #send(file) {
    const stop = new AbortController();
    const bar = el("progress", { max: "1", value: "0", "aria-label": `Uploading ${file.name}` });
    const status = el("span", { class: "hint" }, "uploading");
    const item = el("li", {}, el("span", { class: "file-name" }, brief(file.name, 60)), bar, status, button("Stop", () => stop.abort()));
    this.uploads.append(item);
    try {
      const stored = await this.api.upload(file, (share) => {
        bar.value = share;
        setText(status, share < 1 ? `${Math.round(share * 100)} % of ${bytes(file.size)}` : "reading the document…");
      }, stop.signal);
      item.remove();
      this.files = [stored, ...this.files.filter((other) => other.id !== stored.id)];
      this.chosen.add(stored.id);
      this.#show();
    } catch (error) {
      if (error.name === "AbortError") item.remove();
      else put(item, errorNote(error, () => (item.remove(), this.#send(file))), button("Dismiss", () => item.remove()));
    }
  }

  #show() {
    put(this.list, this.#rows());
    this.onChoice();
  }

  #rows() {
    if (!this.files.length) return emptyNote(storedKey() ? "No documents yet with this key." : "No documents yet.");
    return el("fieldset", {}, el("legend", {}, "Recent documents"), this.files.map((file) => this.#row(file)));
  }

  #row(file) {
    const box = el("input", { type: "checkbox", checked: this.chosen.has(file.id) });
    box.checked = this.chosen.has(file.id);
    box.addEventListener("change", () => {
      if (box.checked) this.chosen.add(file.id);
      else this.chosen.delete(file.id);
      this.onChoice();
    });
    const remove = deleteButton(brief(file.filename, 80), async () => {
      await this.api.deleteFile(file.id);
      this.files = this.files.filter((other) => other.id !== file.id);
      this.chosen.delete(file.id);
      this.#show();
    });
    return el("div", { class: "file-row" },
      el("label", { class: "file" }, box,
        el("span", { class: "file-name" }, brief(file.filename, 80)),
        el("span", { class: "hint" }, fileFacts(file))),
      remove);
  }
}

/** Pages of a file's document, 0 if it has none. */
export const pagesOf = (file) => (file.longfold?.sources > 1 ? file.longfold.sources : 0);

function fileFacts(file) {
  const pages = pagesOf(file);
  const { tokens = 0, characters = 0 } = file.longfold ?? {};
  return [
    pages > 0 && plural(pages, "page"),
    tokens > 0 ? `${shortNumber(tokens)} tokens` : characters > 0 ? `${number(characters)} characters` : bytes(file.bytes),
    file.created_at && since(file.created_at),
  ].filter(Boolean).join(" · ");
}
