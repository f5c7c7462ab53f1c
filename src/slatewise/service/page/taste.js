/* "What I think you like": how far the belief about each category has moved, and how sure it is. */

import { element, figure, show, svg } from "./dom.js";
import { shortened } from "./words.js";

const MOST = 8;
const ROW = 26;
const LABEL = 104;
const WIDTH = 320;
let all = false;

/** Draw the categories of a person, from what they like most to what they like least. */
export function drawTaste(container, person) {
  const known = person.categories.filter((one) => one.lift !== null);
  if (!person.categories.length)
    return show(container, note("This catalog has no categories, so there is no taste to name."));
  if (!person.slates)
    return show(
      container,
      note("Nothing yet. Like what appeals to you and ask for more: then I have something to go by."),
    );
  if (!known.length) return drawCounts(container, person);
  const [rows, relative] = centred(known);
  rows.sort((one, other) => other.lift - one.lift);
  const shown = all || rows.length <= MOST ? rows : [...rows.slice(0, MOST / 2), ...rows.slice(-MOST / 2)];
  const more =
    rows.length > MOST &&
    element(
      "button",
      { class: "quiet", type: "button", onclick: () => toggle(container, person) },
      all ? "Show fewer" : `Show all ${rows.length}`,
    );
  show(container, chart(shown, reach(rows)), relative && note("Compared with the average category."), more);
}

function toggle(container, person) {
  all = !all;
  drawTaste(container, person);
  container.querySelector("button")?.focus();
}

/** A belief that has moved the same way for everything says more about differences than about signs. */
function centred(rows) {
  const lifts = rows.map((one) => one.lift);
  if (rows.length < 3 || Math.min(...lifts) < 0 || Math.max(...lifts) <= 0)
    return [rows.map((one) => ({ ...one })), false];
  const mean = lifts.reduce((sum, one) => sum + one, 0) / lifts.length;
  return [rows.map((one) => ({ ...one, lift: one.lift - mean })), true];
}

function reach(rows) {
  return Math.max(...rows.map((one) => Math.abs(one.lift) + one.deviation), 1e-9);
}

function chart(rows, most) {
  const middle = LABEL + (WIDTH - LABEL) / 2;
  const scale = ((WIDTH - LABEL) / 2 - 6) / most;
  const height = rows.length * ROW + 20;
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart taste" },
    svg("line", { x1: middle, x2: middle, y1: 14, y2: height - 2, class: "axis" }),
    svg("text", { x: middle - 8, y: 9, "text-anchor": "end", class: "small" }, "← less"),
    svg("text", { x: middle + 8, y: 9, class: "small" }, "more →"),
    rows.map((one, place) => bar(one, 18 + place * ROW, middle, scale)),
  );
  const words = rows.map((one) => [one.name, signed(one.lift), one.deviation.toFixed(2), one.shown, one.clicked]);
  return figure(
    drawing,
    "What I think you like, compared with everyone",
    ["Category", "Lift", "Deviation", "Shown", "Liked"],
    words,
  );
}

function bar(one, y, middle, scale) {
  const end = middle + one.lift * scale;
  const [low, high] = [end - one.deviation * scale, end + one.deviation * scale];
  const line = y + ROW / 2 - 2;
  return svg(
    "g",
    { class: one.lift >= 0 ? "more" : "less" },
    svg(
      "title",
      {},
      `${one.name}: ${signed(one.lift)} ± ${one.deviation.toFixed(2)}; ${one.shown} shown, ${one.clicked} liked`,
    ),
    svg("text", { x: LABEL - 10, y: line + 4, "text-anchor": "end", class: "label" }, shortened(one.name, 15)),
    svg("rect", {
      x: Math.min(middle, end),
      y: line - 6,
      width: Math.max(Math.abs(end - middle), 1),
      height: 12,
      rx: 2,
      class: "amount",
    }),
    svg("path", { d: `M${low} ${line}H${high}M${low} ${line - 3}v6M${high} ${line - 3}v6`, class: "whisker" }),
  );
}

/** For policies without a belief: what was shown and liked. */
function drawCounts(container, person) {
  const seen = person.categories
    .filter((one) => one.shown)
    .sort((one, other) => other.clicked - one.clicked)
    .slice(0, MOST);
  const rows = seen.map((one) =>
    element("tr", {}, element("th", { scope: "row" }, one.name), element("td", {}, `${one.clicked} of ${one.shown}`)),
  );
  const head = element("tr", {}, element("th", { scope: "col" }, "Category"), element("th", { scope: "col" }, "Liked"));
  show(
    container,
    note("This policy has no belief about you; this is what you liked of what was shown."),
    element("table", { class: "plain-table" }, element("thead", {}, head), element("tbody", {}, rows)),
  );
}

function note(words) {
  return element("p", { class: "note" }, words);
}

function signed(number) {
  return `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(2)}`;
}
