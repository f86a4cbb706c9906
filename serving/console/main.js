// Starts the console: reads the address, opens the view it names, and keeps key and service state in sight.

import { Api } from "./api.js";
import { AskView } from "./ask_view.js";
import { CompareView } from "./compare_view.js";
import { put, setText } from "./dom.js";
import { brief } from "./format.js";
import { JobView } from "./job_view.js";
import { askForKey, editKey, showKeyState } from "./key_dialog.js";
import { parsePlace } from "./location.js";

const READY_POLL_MS = 5_000;
const VIEWS = { ask: AskView, job: JobView, compare: CompareView };

const PAGE_TITLE = { ask: "Longfold", job: "Question · Longfold", compare: "Compare · Longfold" };

const main = document.getElementById("main");
const keyButton = document.getElementById("key-button");
const api = new Api(async (wasRefused) => {
  const given = await askForKey(wasRefused);
  showKeyState(keyButton);
  return given;
});

let current = null;

function show() {
  const place = parsePlace(location.hash);
  if (place.view === "job" && current?.view === "job" && current.job === place.job) return current.shown.moveTo(place.span);
  const moved = current !== null;
  current?.shown.close();
  const shown = new VIEWS[place.view](api);
  current = { view: place.view, job: place.job, shown };
  for (const link of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("nav a"))) {
    if (link.dataset.view === place.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  put(main, shown.host);
  scrollTo(0, 0);
  if (moved) main.focus({ preventScroll: true }); // what had the focus is gone
  document.title = PAGE_TITLE[place.view];
  shown.open(place);
}

/** The model that answers, or why questions would only wait. */
async function watchReadiness() {
  const service = document.getElementById("service");
  const { ready, body } = await api.readiness();
  const why = body === null ? "The gateway does not answer." : body.missing?.[0] ?? "Not ready yet.";
  setText(service, brief(ready ? (body.runners?.find((runner) => runner.ready)?.model ?? "") : why, 100));
  service.classList.toggle("ready", ready);
  setTimeout(watchReadiness, ready ? 12 * READY_POLL_MS : READY_POLL_MS);
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash names the view
  main.focus();
});
keyButton.addEventListener("click", async () => {
  const given = await editKey();
  showKeyState(keyButton);
  if (given && current.view !== "job") show();
});
addEventListener("hashchange", show);
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault()); // a missed drop must not leave the page
showKeyState(keyButton);
show();
watchReadiness();
