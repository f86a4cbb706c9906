// What is shown is in the address, so a reload or a copied link brings it back: #ask, #job=ID&span=10-20, #compare=ID,ID.

/** The view that a hash names. */
export function parsePlace(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  if (fields.get("job")) return { view: "job", job: fields.get("job"), span: parseSpan(fields.get("span")) };
  if (fields.has("compare")) return { view: "compare", jobs: (fields.get("compare") || "").split(",").filter(Boolean) };
  return { view: "ask", job: fields.get("again") || "" };
}

export function jobPlace(id, span = null) {
  return `#job=${encodeURIComponent(id)}${span ? `&span=${span.start}-${span.end}` : ""}`;
}

export const comparePlace = (ids) => (ids.length ? `#compare=${ids.map(encodeURIComponent).join(",")}` : "#compare");

/** The form, filled in as for this job. */
export const againPlace = (id) => `#again=${encodeURIComponent(id)}`;

export const absolute = (place) => `${location.origin}${location.pathname}${place}`;

function parseSpan(text) {
  const match = /^(\d{1,12})-(\d{1,12})$/.exec(text ?? "");
  if (!match) return null;
  const [start, end] = [Number(match[1]), Number(match[2])];
  return start < end ? { start, end } : null;
}
