// Hands the user a file that was made in the page.

import { el } from "./dom.js";

export function saveFile(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
