// What is known of a run, from its events alone. Pure: the same events give the same state, live or replayed.

export const TERMINAL = new Set(["completed", "failed", "cancelled"]);
const LAST_KINDS = new Set(["job.completed", "job.failed", "job.cancelled"]);
const MIN_PACE_S = 1; // over less time a pace is noise

export const isLastEvent = (event) => LAST_KINDS.has(event.kind);

export function newRun() {
  return {
    state: "queued",
    attempt: 0,
    plan: null,
    chunks: [],
    stages: new Map(),
    collapses: [],
    provisionals: [],
    warnings: [],
    error: null,
    paused: null,
    startedAt: null,
    endedAt: null,
  };
}

/** One event: {kind, data, at}. `at` is Unix seconds. Unknown kinds change nothing. */
export function applyEvent(run, { kind, data, at = 0 }) {
  APPLY[kind]?.(run, data ?? {}, at);
}

const APPLY = {
  "job.queued": (run) => Object.assign(run, { state: "queued", error: null, startedAt: null, endedAt: null }),
  "job.started": (run, data, at) => {
    run.state = "running";
    run.attempt = data.attempt ?? run.attempt + 1;
    run.startedAt ??= at;
    for (const stage of run.stages.values()) stage.pace = { paid: stage.done - stage.journal, at }; // time lost between attempts is no pace
  },
  "job.paused": (run, data, at) => Object.assign(run, { state: "paused", paused: data, endedAt: at }),
  "job.completed": (run, _, at) => Object.assign(run, { state: "completed", endedAt: at }),
  "job.failed": (run, data, at) => Object.assign(run, { state: "failed", error: data.error ?? null, endedAt: at }),
  "job.cancelled": (run, _, at) => Object.assign(run, { state: "cancelled", endedAt: at }),
  plan: (run, data) => {
    run.plan = data;
    growTo(run, data.chunks ?? 0);
  },
  split: (run, data) => {
    growTo(run, data.spans.length);
    data.spans.forEach(([start, end], index) => Object.assign(run.chunks[index], { start, end }));
  },
  "stage.started": (run, data, at) => {
    const stage = stageOf(run, data.stage, at);
    stage.calls = data.calls;
  },
  "call.finished": countCall,
  "chunk.gated": (run, data) => {
    const chunk = chunkOf(run, data.chunk);
    chunk.score = data.score;
    if (chunk.state === "waiting" || chunk.state === "failed") chunk.state = "gated";
  },
  "chunk.mapped": (run, data) => {
    const chunk = chunkOf(run, data.chunk);
    if (data.span) [chunk.start, chunk.end] = data.span;
    const { answer, confidence, probability, evidence } = data;
    Object.assign(chunk, { answer, confidence, probability, evidence: evidence ?? [] });
    if (!data.empty) chunk.state = "found";
    else if (chunk.failedStage !== "map") chunk.state = "empty"; // some strategies tell of an unread chunk too
  },
  collapsed: (run, data) => run.collapses.push({ depth: data.depth, chunks: data.chunks }),
  provisional: (run, data) => run.provisionals.push(data),
  warning: (run, data) => run.warnings.push(data.message ?? ""),
};

function countCall(run, data, at) {
  const stage = stageOf(run, data.stage, at);
  const [prompt = 0, cached = 0, output = 0] = data.tokens ?? [];
  stage.done += 1;
  stage.prompt += prompt;
  stage.cached += cached;
  stage.output += output;
  if (data.cached) stage.journal += 1;
  else stage.lastAt = at;
  if (stage.calls !== null) stage.calls = Math.max(stage.calls, stage.done);
  if (data.state === "failed") stage.failed += 1;
  if (Number.isInteger(data.chunk)) applyToChunk(chunkOf(run, data.chunk), data);
}

function applyToChunk(chunk, { state, stage, error }) {
  if (state !== "failed") {
    if (chunk.failedStage === stage) Object.assign(chunk, { failedStage: null, state: "waiting" }); // asked again, and answered
    if (stage === "map" && (chunk.state === "waiting" || chunk.state === "gated")) chunk.state = "read";
  } else if (error !== "LimitReached" && (chunk.state === "waiting" || chunk.state === "gated")) {
    Object.assign(chunk, { state: "failed", error, failedStage: stage });
  }
}

/** Seconds until a stage's expected calls are done at the pace so far; null if nothing tells. */
export function stageEta(stage) {
  const paid = stage.done - stage.journal - stage.pace.paid;
  const spent = stage.lastAt - stage.pace.at;
  if (stage.calls === null || paid < 2 || stage.done >= stage.calls || spent < MIN_PACE_S) return null;
  return (spent / paid) * (stage.calls - stage.done);
}

/** Rows of the tree under the map: the groups of each collapse round, in document order. */
export function collapseRows(run) {
  const rows = new Map();
  for (const group of run.collapses) rows.set(group.depth, [...(rows.get(group.depth) ?? []), group]);
  return [...rows.entries()]
    .sort(([a], [b]) => a - b)
    .map(([depth, groups]) => ({ depth, groups: groups.sort((a, b) => a.chunks[0] - b.chunks[0]) }));
}

/** How many chunks are in each state. */
export function countChunks(run) {
  const counts = { waiting: 0, gated: 0, read: 0, found: 0, empty: 0, failed: 0 };
  for (const chunk of run.chunks) counts[chunk.state] += 1;
  return counts;
}

function stageOf(run, name, at) {
  if (!run.stages.has(name)) {
    const zero = { calls: null, done: 0, failed: 0, journal: 0, prompt: 0, cached: 0, output: 0 };
    run.stages.set(name, { name, ...zero, firstAt: at, lastAt: at, pace: { paid: 0, at } });
  }
  return run.stages.get(name);
}

function chunkOf(run, index) {
  growTo(run, index + 1);
  return run.chunks[index];
}

function growTo(run, count) {
  for (let index = run.chunks.length; index < count; index += 1) {
    run.chunks.push({ index, state: "waiting", start: null, end: null, evidence: [] });
  }
}
