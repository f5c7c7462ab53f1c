/* Elements, made without markup: whatever a title holds, it stays text. */

const SVG = "http://www.w3.org/2000/svg";

/** Make an HTML element; `on…` attributes are listeners, `--…` attributes custom properties. */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Make an SVG element. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** Replace what a node holds. */
export function show(node, ...children) {
  node.replaceChildren(...present(children));
}

/** Find an element of the page by its id. */
export function byId(id) {
  return document.getElementById(id);
}

/** A drawing with the same content as a table for those who do not see it. */
export function figure(drawing, caption, columns, rows) {
  drawing.setAttribute("aria-hidden", "true");
  const head = element(
    "tr",
    {},
    columns.map((name) => element("th", { scope: "col" }, name)),
  );
  const body = rows.map(([first, ...rest]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, String(first)),
      rest.map((one) => element("td", {}, String(one))),
    ),
  );
  const table = element(
    "table",
    {},
    element("caption", {}, caption),
    element("thead", {}, head),
    element("tbody", {}, body),
  );
  return element("div", { class: "figure" }, drawing, element("div", { class: "unseen" }, table));
}

/** Whether the person asked for less motion. */
export function calm() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}

function present(children) {
  return children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false);
}
