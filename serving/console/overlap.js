// How much two answers rest on the same places: shared characters by all characters, of their located quotes.

/** 0 to 1, or null if either has no located quote. */
export function evidenceOverlap(first, second) {
  const [a, b] = [merged(first), merged(second)];
  if (!a.length || !b.length) return null;
  const shared = sharedLength(a, b);
  return shared / (length(a) + length(b) - shared);
}

function merged(evidence) {
  const spans = (evidence ?? []).filter(({ start }) => Number.isInteger(start)).map(({ start, end }) => [start, end]);
  spans.sort((a, b) => a[0] - b[0]);
  const out = [];
  for (const [start, end] of spans) {
    const last = out.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else out.push([start, end]);
  }
  return out;
}

const length = (spans) => spans.reduce((sum, [start, end]) => sum + end - start, 0);

function sharedLength(a, b) {
  let [i, j, sum] = [0, 0, 0];
  while (i < a.length && j < b.length) {
    sum += Math.max(0, Math.min(a[i][1], b[j][1]) - Math.max(a[i][0], b[j][0]));
    if (a[i][1] < b[j][1]) i += 1;
    else j += 1;
  }
  return sum;
}
