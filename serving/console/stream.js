// A job's events over fetch: EventSource cannot send a key. Comes back with Last-Event-ID after every break.

const MIN_WAIT_MS = 500;
const MAX_WAIT_MS = 15_000;
const SILENCE_MS = 45_000; // the gateway pings every 15 s

/**
 * Follow events until `stop()`, or until the stream ends after an event for which `isLast(event)`; a terminal event in
 * the middle of a job's history is followed by its retry. `open(lastEventId, signal)` gives a response.
 * `onState` hears {state: "connecting" | "live" | "lost" | "ended" | "refused", retryAtMs?, error?}.
 */
export function followEvents({ open, isLast, onEvent, onState }) {
  let stopped = false;
  let last = null;
  let lastId = 0;
  let failures = 0;
  let reading = new AbortController();
  let wake = () => {};
  const reconnect = () => wake(); // now instead of at the end of the wait
  addEventListener("online", reconnect);

  function stop() {
    stopped = true;
    reading.abort();
    wake();
    removeEventListener("online", reconnect);
  }

  /** One response, to its end or its break; whether there is nothing more to come. Throws what broke it. */
  async function read() {
    reading = new AbortController();
    let silence = setTimeout(() => reading.abort(), SILENCE_MS);
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => reading.abort(), SILENCE_MS);
    };
    onState({ state: "connecting", failures });
    try {
      const response = await open(lastId, reading.signal);
      onState({ state: "live" });
      for await (const event of readEvents(response.body, heard)) {
        if (stopped) return true;
        if (event.id && event.id <= lastId) continue;
        lastId = event.id || lastId;
        failures = 0;
        last = event;
        onEvent(event);
      }
      return last !== null && isLast(last);
    } finally {
      clearTimeout(silence);
      reading.abort();
    }
  }

  async function run() {
    while (!stopped) {
      let [over, error] = [false, null];
      try {
        over = await read();
      } catch (broken) {
        error = broken;
      }
      if (stopped) return;
      const refused = error?.status >= 400 && error.status < 500 && error.status !== 429;
      if (over || refused) {
        stop();
        return onState(refused ? { state: "refused", error } : { state: "ended" });
      }
      failures += 1;
      const longest = Math.min(MAX_WAIT_MS, MIN_WAIT_MS * 2 ** Math.min(failures - 1, 10));
      const waitMs = longest / 2 + Math.random() * (longest / 2);
      onState({ state: "lost", retryAtMs: Date.now() + waitMs, error });
      await new Promise((resolve) => {
        wake = () => resolve(null);
        setTimeout(wake, waitMs);
      });
    }
  }

  run();
  return { stop, reconnect };
}

/** Server-sent events of a byte stream: {id, kind, data}. `onBytes` hears of every arrival, pings included. */
async function* readEvents(body, onBytes) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onBytes();
      const blocks = (rest + value).split(/\r\n\r\n|\n\n|\r\r/);
      rest = blocks.pop();
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parseEvent(block) {
  const event = { id: 0, kind: "message", data: null };
  const data = [];
  for (const line of block.split(/\r\n|\n|\r/)) {
    const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
    if (name === "id") event.id = Number(value) || 0;
    else if (name === "event") event.kind = value;
    else if (name === "data") data.push(value);
  }
  if (!data.length) return null;
  try {
    event.data = JSON.parse(data.join("\n"));
  } catch {
    return null;
  }
  return event;
}
