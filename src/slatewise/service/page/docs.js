/* The API reference, drawn from the service's OpenAPI description, with requests to try. */

import { ask } from "./api.js";
import { byId, element, show } from "./dom.js";
import { fieldsOf, typeOf } from "./schema.js";

const PLACEHOLDERS = { user: "anna", item: "1" };

async function draw() {
  const described = await ask("GET", "openapi.json");
  byId("about").textContent = `${described.info.description} Version ${described.info.version}.`;
  const operations = Object.entries(described.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => ({ ...one, path, method, id: `${method}${path}`.replace(/\W+/g, "-") })),
  );
  const groups = Map.groupBy ? Map.groupBy(operations, groupOf) : grouped(operations);
  show(byId("contents"), [...groups].map(([name, all]) => contents(name, all)));
  show(
    byId("operations"),
    [...groups].map(([name, all]) =>
      element("section", { class: "group" }, element("h2", {}, name), all.map((one) => operation(one, described))),
    ),
  );
  openTarget();
}

function grouped(operations) {
  const groups = new Map();
  for (const one of operations) groups.set(groupOf(one), [...(groups.get(groupOf(one)) ?? []), one]);
  return groups;
}

/** "/v1/slates" belongs to "slates". */
function groupOf({ path }) {
  const [first, second] = path.split("/").filter(Boolean);
  return first === "v1" ? second : "operations";
}

function contents(name, all) {
  const link = (one) =>
    element("li", {}, element("a", { href: `#${one.id}` }, element("span", { class: `method ${one.method}` }, one.method.toUpperCase()), one.path));
  return element("div", {}, element("strong", {}, name), element("ul", {}, all.map(link)));
}

function operation(one, described) {
  const scopes = one["x-scopes"].length ? `Needs a key with the scope ${one["x-scopes"].join(" or ")}, if keys are used.` : "Needs no key.";
  const sent = one.requestBody?.content["application/json"];
  return element(
    "details",
    { class: "operation", id: one.id },
    element(
      "summary",
      {},
      element("h3", {}, element("span", { class: `method ${one.method}` }, one.method.toUpperCase()), element("code", {}, one.path)),
      element("span", { class: "note" }, one.summary.replaceAll("`", "")),
    ),
    element(
      "div",
      {},
      element("p", { class: "prose" }, one.description.replace(/(\S)\n(?=\S)/g, "$1 ").replaceAll("`", "")),
      element("p", { class: "note" }, scopes),
      one.parameters && table("Parameters", one.parameters.map((parameter) => [parameter.name, parameter.required, parameter.schema, parameter.description]), described),
      sent && body(sent.schema, described),
      responses(one, described),
      tryIt(one, sent?.example),
    ),
  );
}

function body(schema, described) {
  return fieldsOf(schema, described).map(({ name, fields }) => table(`Body: ${name}`, fields, described));
}

function responses(one, described) {
  return Object.entries(one.responses)
    .filter(([status]) => /^\d+$/.test(status))
    .map(([status, response]) => {
      const schema = Object.values(response.content ?? {})[0]?.schema;
      const tables = schema ? fieldsOf(schema, described).map(({ name, fields }) => table(`Response ${status}: ${name}`, fields, described)) : [];
      return tables.length ? tables : element("h4", {}, `Response ${status}${schema ? `: ${typeOf(schema)}` : ""}`);
    });
}

function table(title, rows, described) {
  const cells = rows.map(([name, required, schema, words]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("code", {}, name)),
      element("td", {}, typeOf(schema, described)),
      element("td", {}, required ? "required" : "optional"),
      element("td", {}, words ?? schema.description ?? ""),
    ),
  );
  return [element("h4", {}, title), element("table", { class: "fields", tabindex: "0" }, element("tbody", {}, cells))];
}

/** A form that sends the request to this service and shows what comes back. */
function tryIt(one, example) {
  const inputs = new Map(
    (one.parameters ?? []).map(({ name }) => [name, element("input", { name, value: one.path.includes(`{${name}}`) ? (PLACEHOLDERS[name] ?? "") : "", spellcheck: "false", autocomplete: "off" })]),
  );
  const text = one.requestBody && element("textarea", { rows: "8", spellcheck: "false" });
  if (text) text.value = JSON.stringify(example ?? {}, null, 2);
  const output = element("output", {});
  const send = async (event) => {
    event.preventDefault();
    show(output, await outcome(one, inputs, text?.value));
  };
  return element(
    "form",
    { class: "try", onsubmit: send },
    element("h4", {}, "Try it"),
    [...inputs].map(([name, input]) => element("label", {}, name, input)),
    text && element("label", {}, "Body", text),
    element("button", { class: "quiet", type: "submit" }, "Send"),
    output,
  );
}

async function outcome(one, inputs, text) {
  const path = one.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(inputs.get(name).value)).slice(1);
  const query = new URLSearchParams([...inputs].filter(([name, { value }]) => value && !one.path.includes(`{${name}}`)).map(([name, { value }]) => [name, value]));
  const address = query.size ? `${path}?${query}` : path;
  const curl = `curl -X ${one.method.toUpperCase()} '${new URL(address, document.baseURI)}'${text ? ` -H 'Content-Type: application/json' -d '${text.replaceAll("'", "'\\''")}'` : ""}`;
  return [element("pre", { tabindex: "0" }, curl), element("pre", { tabindex: "0" }, await responseTo(one.method.toUpperCase(), address, text))];
}

async function responseTo(method, address, text) {
  try {
    const content = await ask(method, address, text === undefined ? undefined : JSON.parse(text));
    return content === null ? "204: done" : JSON.stringify(content, null, 2);
  } catch (problem) {
    return [problem.status, problem.message, problem.detail].filter(Boolean).join(": ");
  }
}

/** Open the operation that the address points to. */
function openTarget() {
  const target = byId(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView();
  }
}

addEventListener("hashchange", openTarget);
draw().catch((problem) => (byId("about").textContent = problem.message));
