// Elements from plain values. Everything that is shown passes through here as a text node or an attribute, never as
// markup: what stands in a document cannot become part of the page.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. `class`, `on…` (listeners) and `dataset` are special; true and false set or leave an attribute. */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Replace what stands in `host`. Empty values are skipped. */
export function put(host, ...children) {
  host.replaceChildren(...present(children));
  return host;
}

/** Set the text only if it differs, so that a live region speaks once. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function toggle(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.setAttribute("class", value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...present(children));
  return node;
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}
