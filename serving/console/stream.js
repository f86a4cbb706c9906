// A job's events over fetch: EventSource cannot send a key. Comes back with Last-Event-ID after every break.

const SHORTEST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const SILENCE_MS = 45_000; // the gateway pings every 15 s

/**
 * Follow events until `stop()`, or until the stream ends after an event for which `isLast(event)`; a terminal event in
 * the middle of a job's history is followed by its retry. `open(lastEventId, signal)` gives a response.
 * `onState` hears {state: "connecting" | "live" | "lost" | "ended" | "refused", retryAtMs?, error?}.
 */
export function followEvents({ open, isLast, onEvent, onState }) {
  const follower = new Follower(open, isLast, onEvent, onState);
  follower.run();
  return follower;
}

class Follower {
  #stopped = false;
  #last = null;
  #lastId = 0;
  #failures = 0;
  #abort = null;
  #wake = null;

  constructor(open, isLast, onEvent, onState) {
    Object.assign(this, { open, isLast, onEvent, onState });
    this.onOnline = () => this.reconnect();
    addEventListener("online", this.onOnline);
  }

  async run() {
    while (!this.#stopped) {
      const error = await this.#readOnce();
      if (this.#stopped) return;
      if (error === "ended") return this.#end({ state: "ended" });
      if (error?.status >= 400 && error.status < 500 && error.status !== 429) return this.#end({ state: "refused", error });
      await this.#wait(error);
    }
  }

  /** Try again now instead of at the end of the wait. */
  reconnect() {
    this.#wake?.();
  }

  stop() {
    this.#stopped = true;
    this.#abort?.abort();
    this.#wake?.();
    removeEventListener("online", this.onOnline);
  }

  #end(state) {
    this.stop();
    this.onState(state);
  }

  async #readOnce() {
    this.#abort = new AbortController();
    let silence = setTimeout(() => this.#abort.abort(), SILENCE_MS);
    this.onState({ state: "connecting", failures: this.#failures });
    try {
      const response = await this.open(this.#lastId, this.#abort.signal);
      this.onState({ state: "live" });
      for await (const event of readEvents(response.body, () => {
        clearTimeout(silence);
        silence = setTimeout(() => this.#abort.abort(), SILENCE_MS);
      })) {
        if (this.#stopped) return "ended";
        if (event.id && event.id <= this.#lastId) continue;
        this.#lastId = event.id || this.#lastId;
        this.#failures = 0;
        this.#last = event;
        this.onEvent(event);
      }
      return this.#last && this.isLast(this.#last) ? "ended" : null;
    } catch (error) {
      return error;
    } finally {
      clearTimeout(silence);
      this.#abort.abort();
    }
  }

  #wait(error) {
    this.#failures += 1;
    const longest = Math.min(LONGEST_WAIT_MS, SHORTEST_WAIT_MS * 2 ** Math.min(this.#failures - 1, 10));
    const waitMs = longest / 2 + Math.random() * (longest / 2);
    this.onState({ state: "lost", retryAtMs: Date.now() + waitMs, error });
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, waitMs);
      this.#wake = () => (clearTimeout(timer), resolve());
    }).finally(() => (this.#wake = null));
  }
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
