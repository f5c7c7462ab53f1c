/* The path of the belief: where it stood after each slate, on a map whose landmarks are categories. */

import { hueOf } from "./color.js";
import { element, figure, show, svg } from "./dom.js";
import { shortened } from "./words.js";

const WIDTH = 320;
const HEIGHT = 260;
const CENTER = [WIDTH / 2, HEIGHT / 2];
const LANDMARK_REACH = [118, 104];
const PATH_REACH = 84;
const MOST_LANDMARKS = 10;
const LETTER = 6.2;
const SHIFTS = [0, -16, 16];

/** Draw the path of a person; landmarks are directions, so they have a scale of their own. */
export function drawPath(container, person) {
  const points = person.rounds.filter((one) => one.x !== null).map((one) => [one.x, one.y]);
  if (!points.length)
    return show(container, element("p", { class: "note" }, "The path begins with your first answer."));
  const steps = [...(person.rounds.length === person.slates ? [[0, 0]] : []), ...points];
  const longest = Math.max(...steps.map(([x, y]) => Math.hypot(x, y)), 1e-9);
  const places = steps.map(([x, y]) => [
    CENTER[0] + (x / longest) * PATH_REACH,
    CENTER[1] - (y / longest) * PATH_REACH,
  ]);
  const landmarks = chosen(person.landmarks, points.at(-1), places.at(-1));
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart map" },
    cross(),
    landmarks.map(landmark),
    trail(places),
  );
  const words = landmarks.map((one) => [one.name, `${Math.round(one.agreement * 100)} %`]);
  show(
    container,
    figure(
      drawing,
      "How far the belief points to each category (100 %: straight to it)",
      ["Category", "Direction"],
      words,
    ),
    element(
      "p",
      { class: "note" },
      "Each dot is a slate. Moving towards a name means that I expect more of it to please you.",
    ),
  );
}

/** The landmarks that say most, in the direction of the belief or against it, moved where they would collide. */
function chosen(landmarks, [x, y], [headX, headY]) {
  const farthest = Math.max(...landmarks.map(([, u, v]) => Math.hypot(u, v)), 1e-9);
  const ranked = landmarks
    .map(([name, u, v]) => ({
      name: shortened(name, 18),
      hue: hueOf(name),
      ...placed(u / farthest, v / farthest),
      agreement: cosine([u, v], [x, y]),
      length: Math.hypot(u, v),
    }))
    .sort((one, other) => Math.abs(other.agreement) * other.length - Math.abs(one.agreement) * one.length);
  const kept = [{ name: "", x: headX, y: headY + 4 }];
  for (const one of ranked.slice(0, 2 * MOST_LANDMARKS)) {
    const spot = SHIFTS.map((shift) => ({ ...one, y: one.y + shift })).find(
      (here) => !kept.some((other) => overlap(here, other)),
    );
    if (spot && kept.length <= MOST_LANDMARKS) kept.push(spot);
  }
  return kept.slice(1);
}

function placed(u, v) {
  const size = Math.hypot(u, v) || 1;
  const reach = 0.45 + 0.55 * size;
  return {
    x: CENTER[0] + (u / size) * reach * LANDMARK_REACH[0],
    y: CENTER[1] - (v / size) * reach * LANDMARK_REACH[1],
  };
}

function overlap(one, other) {
  const width = ((one.name.length + other.name.length) / 2) * LETTER + 14;
  return Math.abs(one.x - other.x) < width && Math.abs(one.y - other.y) < 16;
}

function cosine([a, b], [c, d]) {
  return (a * c + b * d) / (Math.hypot(a, b) * Math.hypot(c, d) || 1);
}

function cross() {
  const [x, y] = CENTER;
  return svg("path", { d: `M0 ${y}H${WIDTH}M${x} 0V${HEIGHT}`, class: "rule" });
}

function landmark({ name, hue, x, y }) {
  const half = (name.length * LETTER) / 2;
  const inside = Math.min(Math.max(x, half + 8), WIDTH - half - 2);
  return svg(
    "g",
    { class: "landmark", "--hue": hue },
    svg("circle", { cx: inside - half - 3, cy: y - 4, r: 3 }),
    svg("text", { x: inside + 3, y, "text-anchor": "middle" }, name),
  );
}

function trail(places) {
  const path = places.map(([x, y], place) => `${place ? "L" : "M"}${x} ${y}`).join("");
  const last = places.at(-1);
  return [
    svg("path", { d: path, class: "curve" }),
    places.map(([cx, cy], place) => svg("circle", { cx, cy, r: 3, class: place ? "point" : "point start" })),
    svg("circle", { cx: last[0], cy: last[1], r: 9, class: "halo" }),
    svg("circle", { cx: last[0], cy: last[1], r: 4.5, class: "point" }),
  ];
}
