/* Likes and variety, slate by slate. */

import { element, figure, show, svg } from "./dom.js";
import { percent } from "./words.js";

const WIDTH = 320;
const LEFT = 34;
const SHOWN = 20;
const BARS = { top: 22, height: 50 };
const LINE = { top: 104, height: 50 };

/** Draw the latest rounds of a person. */
export function drawRounds(container, person) {
  if (!person.rounds.length) return show(container, element("p", { class: "note" }, "Your first slate is still open."));
  const rounds = person.rounds.slice(-SHOWN);
  const first = person.slates - rounds.length + 1;
  const most = Math.max(...rounds.map((one) => one.clicks), 1);
  const step = (WIDTH - LEFT - 6) / Math.max(rounds.length, 5);
  const center = (place) => LEFT + step * (place + 0.5);
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} 180`, class: "chart" },
    heading("Likes", 12),
    rounds.map((one, place) => likes(one.clicks, center(place), Math.min(step * 0.6, 22), most)),
    rule(BARS.top + BARS.height),
    heading("Variety", 94),
    grid(),
    line(rounds, center),
    rounds.map((one, place) => number(first + place, center(place), rounds.length)),
  );
  const words = rounds.map((one, place) => [first + place, one.clicks, one.variety === null ? "unknown" : percent(one.variety), one.policy]);
  show(container, figure(drawing, "Likes and variety of each slate", ["Slate", "Likes", "Variety", "Policy"], words));
}

function likes(clicks, x, width, most) {
  const height = (clicks / most) * (BARS.height - 12);
  const top = BARS.top + BARS.height - height;
  return [
    svg("rect", { x: x - width / 2, y: top, width, height, rx: 2, class: "amount" }),
    svg("text", { x, y: top - 4, "text-anchor": "middle", class: "small" }, String(clicks)),
  ];
}

function line(rounds, center) {
  const known = rounds.map((one, place) => [one.variety, center(place)]).filter(([variety]) => variety !== null);
  const points = known.map(([variety, x]) => [x, heightOf(variety)]);
  const path = points.map(([x, y], place) => `${place ? "L" : "M"}${x} ${y}`).join("");
  return [
    svg("path", { d: path, class: "curve" }),
    points.map(([cx, cy]) => svg("circle", { cx, cy, r: 3, class: "point" })),
  ];
}

function grid() {
  return [0, 0.5, 1].map((share) => [
    rule(heightOf(share)),
    svg("text", { x: LEFT - 6, y: heightOf(share) + 4, "text-anchor": "end", class: "small" }, percent(share)),
  ]);
}

function number(words, x, n) {
  if (n > 10 && words % 5) return null;
  return svg("text", { x, y: LINE.top + LINE.height + 16, "text-anchor": "middle", class: "small" }, String(words));
}

function heading(words, y) {
  return svg("text", { x: 0, y, class: "label" }, words);
}

function rule(y) {
  return svg("line", { x1: LEFT, x2: WIDTH, y1: y, y2: y, class: "rule" });
}

function heightOf(share) {
  return LINE.top + LINE.height * (1 - share);
}
