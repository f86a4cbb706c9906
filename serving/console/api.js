// Every request to the gateway. The key lives in this tab's session storage and goes out as a header only.

const KEY = "longfold-key";

/** An error body of the gateway, or a network that did not answer (status 0). */
export class ApiFailure extends Error {
  constructor(status, message, code = "", retryAfterS = null) {
    super(message);
    this.name = "ApiFailure";
    this.status = status;
    this.code = code;
    this.retryAfterS = retryAfterS;
  }
}

export const storedKey = () => sessionStorage.getItem(KEY) ?? "";
export const storeKey = (key) => (key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY));

/** `askForKey(wasRefused)` resolves to true when the user gave a key. */
export class Api {
  #askForKey;
  /** @type {Promise<boolean> | null} */
  #asking = null;

  constructor(askForKey) {
    this.#askForKey = askForKey;
  }

  files = async () => listed(await this.#json("GET", "/v1/files?limit=20"));
  models = async () => listed(await this.#json("GET", "/v1/models"));
  jobs = async () => listed(await this.#json("GET", "/v1/jobs?limit=12"));
  job = (id, signal) => this.#json("GET", jobPath(id), { signal });
  result = (id) => this.#json("GET", `${jobPath(id)}/result`);
  cancel = (id) => this.#json("POST", `${jobPath(id)}/cancel`);
  retry = (id) => this.#json("POST", `${jobPath(id)}/retry`);
  resume = (id, state) => this.#json("POST", `${jobPath(id)}/resume`, { body: state === null ? {} : { state } });
  estimate = (question, signal) => this.#json("POST", "/v1/jobs:estimate", { body: question, signal });
  submit = (question) =>
    this.#json("POST", "/v1/jobs", { body: question, headers: { "Idempotency-Key": randomName() } });
  deleteFile = (id) => this.#json("DELETE", `/v1/files/${encodeURIComponent(id)}`);
  deleteJob = (id) => this.#json("DELETE", jobPath(id));

  /** Code points [start, end) of a job's document. */
  text = (id, start, end, signal) => this.#json("GET", `${jobPath(id)}/text?start=${start}&end=${end}`, { signal });

  /** The response that carries a job's events, from after `lastEventId`. */
  events(id, lastEventId, signal) {
    const headers = { Accept: "text/event-stream" };
    if (lastEventId) headers["Last-Event-ID"] = String(lastEventId);
    return this.#send("GET", `${jobPath(id)}/events`, { headers, signal });
  }

  /** Whether questions can be answered now, and if not, why. */
  async readiness() {
    try {
      const response = await fetch("/readyz", { headers: { Accept: "application/json" } });
      return { ready: response.ok, body: await response.json().catch(() => ({})) };
    } catch {
      return { ready: false, body: null };
    }
  }

  /** Upload with progress (0 to 1), which only XMLHttpRequest reports. */
  async upload(file, onProgress, signal) {
    for (let refused = false; ; refused = true) {
      try {
        return await sendFile(file, onProgress, signal);
      } catch (error) {
        if (!(error instanceof ApiFailure && error.status === 401 && (await this.#newKey(refused)))) throw error;
      }
    }
  }

  /** @param {{ body?: any, headers?: Record<string, string>, signal?: AbortSignal }} [request] */
  async #json(method, path, request = {}) {
    const { body, headers = {}, signal } = request;
    const sent = { body: undefined, headers: { Accept: "application/json", ...headers }, signal };
    if (body !== undefined) {
      sent.headers["Content-Type"] = "application/json";
      sent.body = JSON.stringify(body);
    }
    const response = await this.#send(method, path, sent);
    return response.status === 204 ? null : response.json();
  }

  async #send(method, path, { headers, body = undefined, signal }) {
    for (let refused = false; ; refused = true) {
      const response = await reach(path, { method, headers: { ...headers, ...authorization() }, body, signal });
      if (response.ok) return response;
      const failure = await readFailure(response);
      if (failure.status !== 401 || !(await this.#newKey(refused))) throw failure;
    }
  }

  /** Several requests that are refused at once ask once. */
  #newKey(wasRefused) {
    this.#asking ??= this.#askForKey(wasRefused || storedKey() !== "").finally(() => (this.#asking = null));
    return this.#asking;
  }
}

const jobPath = (id) => `/v1/jobs/${encodeURIComponent(id)}`;
const listed = (body) => (Array.isArray(body) ? body : (body?.data ?? []));
const authorization = () => (storedKey() ? { Authorization: `Bearer ${storedKey()}` } : {});

async function reach(path, request) {
  try {
    return await fetch(path, { ...request, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiFailure(0, "The gateway does not answer. Is `longfold serve` running?", "unreachable");
  }
}

async function readFailure(response) {
  const body = await response.json().catch(() => null);
  return failureOf(response.status, body, response.headers.get("Retry-After"), response.statusText);
}

function failureOf(status, body, retryAfter, statusText) {
  const given = body?.error?.message || body?.detail || body?.title;
  const message = typeof given === "string" ? given : statusText || `The gateway answered ${status}.`;
  return new ApiFailure(status, message, body?.error?.code ?? "", retryAfter ? Number(retryAfter) : null);
}

function sendFile(file, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/v1/files");
    for (const [name, value] of Object.entries(authorization())) request.setRequestHeader(name, value);
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onload = () => {
      if (request.status < 300) resolve(request.response);
      else reject(failureOf(request.status, request.response, request.getResponseHeader("Retry-After"), request.statusText));
    };
    request.onerror = () => reject(new ApiFailure(0, "The upload failed. Is the gateway still running?", "unreachable"));
    request.onabort = () => reject(new DOMException("The upload was stopped.", "AbortError"));
    signal?.addEventListener("abort", () => request.abort());
    const form = new FormData();
    form.append("purpose", "user_data");
    form.append("file", file, file.name);
    request.send(form);
  });
}

/** crypto.randomUUID is missing on plain HTTP. */
function randomName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
