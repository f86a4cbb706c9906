// Numbers, times and foreign text as people read them.

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (Number.isFinite(value) ? WHOLE.format(value) : "–");
export const shortNumber = (value) => (Number.isFinite(value) ? SHORT.format(value) : "–");

/** Whole percents, but never a "100 %" or "0 %" that is not quite true. */
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const whole = Math.round(share * 100);
  if (whole === 100 && share < 1) return "> 99 %";
  return whole === 0 && share > 0 ? "< 1 %" : `${whole} %`;
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 600) {
    const whole = Math.round(seconds);
    return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  }
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

export function bytes(count) {
  if (!Number.isFinite(count)) return "–";
  const thousands = Math.min(3, Math.floor(Math.log10(Math.max(1, count)) / 3));
  return `${shortNumber(count / 1000 ** thousands)} ${["B", "kB", "MB", "GB"][thousands]}`;
}

/** How long ago, or the date. */
export function since(unixSeconds, now = Date.now() / 1000) {
  const seconds = now - unixSeconds;
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(unixSeconds * 1000).toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
}

/** Control characters and direction overrides made visible, one UTF-16 unit for one: offsets stay. */
export function printable(text) {
  return String(text ?? "").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, (unit) => {
    const code = unit.charCodeAt(0);
    if (code === 0x0d) return " ";
    return code < 32 ? String.fromCharCode(0x2400 + code) : "\ufffd";
  });
}

/** At most `maxChars` characters of one line. */
export function brief(text, maxChars = 160) {
  const line = printable(text).replace(/\s+/g, " ").trim();
  const points = Array.from(line);
  return points.length > maxChars ? `${points.slice(0, maxChars - 1).join("")}…` : line;
}

const TASK_NAMES = {
  question_answering: "Question",
  multiple_choice: "Multiple choice",
  summarization: "Summary",
  retrieval: "Find a passage",
  code: "Question about code",
  aggregation: "Collect and count",
};

export const taskName = (task) => TASK_NAMES[task] ?? task;
export const TASKS = Object.keys(TASK_NAMES);
