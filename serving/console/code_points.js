// The API counts code points, the browser UTF-16 units. A fetched range is converted once, here.

/** A function from code point offsets inside `text` to UTF-16 offsets; offsets past the end give the end. */
export function utf16Offsets(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (points) => Math.min(points, text.length);
  const starts = [];
  for (let unit = 0; unit < text.length; unit += text.codePointAt(unit) > 0xffff ? 2 : 1) starts.push(unit);
  starts.push(text.length);
  return (points) => starts[Math.min(points, starts.length - 1)];
}

/** Length in code points. */
export function codePoints(text) {
  let count = 0;
  for (let unit = 0; unit < text.length; unit += text.codePointAt(unit) > 0xffff ? 2 : 1) count += 1;
  return count;
}
