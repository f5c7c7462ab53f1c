/* A small curve of the last few minutes. */

import { figure, svg } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 48;
const SAID = 5;

/** Draw values that came every `step` seconds, the newest at the right; the table for listeners holds the last few. */
export function sparkline(name, values, step) {
  const most = Math.max(...values, 1e-9);
  const width = WIDTH / Math.max(values.length - 1, 29);
  const points = values.map((value, place) => [
    WIDTH - 4 - (values.length - 1 - place) * width,
    HEIGHT - 4 - (value / most) * (HEIGHT - 10),
  ]);
  const path = points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const [[x]] = points;
  const [lastX, lastY] = points.at(-1);
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart spark" },
    svg("path", { d: `${path}V${HEIGHT - 2}H${x}Z`, class: "area" }),
    svg("path", { d: path, class: "curve" }),
    svg("circle", { cx: lastX, cy: lastY, r: 3, class: "point" }),
  );
  const rows = values
    .slice(-SAID)
    .map((value, place, all) => [`${(all.length - 1 - place) * step} s ago`, value.toFixed(2)]);
  return figure(drawing, name, ["When", "Per second"], rows);
}
