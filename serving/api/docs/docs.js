// The API's description from /openapi.json. Text nodes only; nothing is fetched from elsewhere.

const METHODS = ["get", "post", "put", "patch", "delete"];

function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const resolve = (api, schema) =>
  schema?.$ref ? schema.$ref.slice(2).split("/").reduce((at, key) => at[key], api) : schema;

/** The schema as one short word or phrase. */
function kindOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kindOf).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${kindOf(schema.items) || "any"}`;
  return schema.type ?? "any";
}

function fieldTable(api, schema) {
  const whole = resolve(api, schema);
  const fields = Object.entries(whole?.properties ?? {});
  if (!fields.length) return null;
  const rows = fields.map(([name, field]) => {
    const needed = whole.required?.includes(name) ? "required" : "default" in field ? `default ${JSON.stringify(field.default)}` : "";
    return el("tr", {}, el("td", {}, el("code", {}, name)), el("td", {}, kindOf(field)), el("td", {}, needed),
      el("td", {}, field.description ?? resolve(api, field)?.description ?? ""));
  });
  return el("table", {}, el("tbody", {}, ...rows));
}

function example(api, media) {
  const schema = resolve(api, media.schema);
  const shown = media.example ?? schema?.example ?? schema?.examples?.[0];
  if (shown === undefined) return null;
  return el("pre", {}, typeof shown === "string" ? shown : JSON.stringify(shown, null, 2));
}

function contents(api, title, part) {
  return Object.entries(part?.content ?? {}).map(([type, media]) =>
    el("section", {}, el("h4", {}, `${title} · ${type}`), fieldTable(api, media.schema), example(api, media)));
}

function parameters(operation) {
  if (!operation.parameters?.length) return null;
  const rows = operation.parameters.map((one) =>
    el("tr", {}, el("td", {}, el("code", {}, one.name)), el("td", {}, one.in), el("td", {}, kindOf(one.schema)),
      el("td", {}, one.description ?? "")));
  return el("table", {}, el("tbody", {}, ...rows));
}

function drawOperation(api, path, method, operation) {
  const responses = Object.entries(operation.responses ?? {}).flatMap(([status, response]) =>
    status.endsWith("XX") ? [] : contents(api, status, response));
  const about = operation.description ?? operation.summary ?? "";
  const node = el("details", {},
    el("summary", {}, el("span", { class: "method" }, method.toUpperCase()), el("span", { class: "path" }, path),
      el("span", { class: "about" }, about.split("\n")[0])),
    el("div", { class: "inside" }, el("p", {}, about), parameters(operation),
      ...contents(api, "body", operation.requestBody), ...responses));
  node.dataset.words = `${method} ${path} ${about}`.toLowerCase();
  return node;
}

function draw(api) {
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((name) => name in methods)) {
      const tag = methods[method].tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), drawOperation(api, path, method, methods[method])]);
    }
  }
  return [...groups].map(([tag, nodes]) => el("section", {}, el("h2", {}, tag), ...nodes));
}

const host = document.getElementById("operations");
try {
  const response = await fetch("/openapi.json");
  host.replaceChildren(...draw(await response.json()));
} catch {
  host.replaceChildren(el("p", {}, "The gateway does not answer."));
}
document.getElementById("filter").addEventListener("input", (event) => {
  const word = /** @type {HTMLInputElement} */ (event.target).value.trim().toLowerCase();
  for (const node of host.querySelectorAll("details")) node.hidden = !node.dataset.words.includes(word);
});
