/* Policies compared by one figure: a dot for the mean, a line for its confidence interval. */

import { element, figure, svg } from "./dom.js";
import { percent, policyName } from "./words.js";

const WIDTH = matchMedia("(max-width: 40rem)").matches ? 320 : 420;
const LEFT = 122;
const RIGHT = 64;
const ROW = 34;
const TOP = 22;

/** Draw one figure of all policies on a common scale. */
export function intervals(title, policies, name) {
  const known = policies.filter((one) => one[name].value !== null);
  const scale = scaleOf(
    known.flatMap((one) => [one[name].value, one[name].low, one[name].high]).filter((one) => one !== null),
  );
  const height = TOP + policies.length * ROW;
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, class: "chart" },
    scale.ticks.map((tick) => gridline(scale.at(tick), tick, height)),
    policies.map((one, place) => row(one, one[name], scale, TOP + (place + 0.5) * ROW)),
  );
  const rows = policies.map((one) => [policyName(one.policy), words(one[name]), one.users, one.slates]);
  return element(
    "div",
    {},
    element("h3", {}, title),
    figure(drawing, title, ["Policy", "Mean and interval", "People", "Slates"], rows),
  );
}

function row(policy, { value, low, high }, scale, y) {
  const label = svg("text", { x: LEFT - 12, y: y + 4, "text-anchor": "end" }, policyName(policy.policy));
  if (value === null) return [label, svg("text", { x: LEFT, y: y + 4, class: "small" }, "nothing yet")];
  return [
    label,
    low !== null &&
      svg("path", {
        d: `M${scale.at(low)} ${y}H${scale.at(high)}M${scale.at(low)} ${y - 5}v10M${scale.at(high)} ${y - 5}v10`,
        class: "interval",
      }),
    svg("circle", { cx: scale.at(value), cy: y, r: 5, class: "mean" }),
    svg("text", { x: WIDTH - RIGHT + 12, y: y + 4, class: "small" }, `${(100 * value).toFixed(1)} %`),
  ];
}

function gridline(x, tick, height) {
  return [
    svg("line", { x1: x, x2: x, y1: TOP - 6, y2: height, class: "rule" }),
    svg("text", { x, y: TOP - 11, "text-anchor": "middle", class: "small" }, percent(tick)),
  ];
}

/** From a round number below everything to one above, in steps of 1, 2, 5, 10 or 20 %. */
function scaleOf(values) {
  const [lowest, highest] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  const step = [0.01, 0.02, 0.05, 0.1].find((one) => (highest - lowest) / one <= 4) ?? 0.2;
  const low = Math.max(Math.floor(lowest / step - 0.2) * step, 0);
  const high = Math.min(Math.max(Math.ceil(highest / step + 0.2) * step, low + step), 1);
  const ticks = Array.from({ length: Math.round((high - low) / step) + 1 }, (_, place) => low + place * step);
  return { ticks, at: (value) => LEFT + ((value - low) / (high - low)) * (WIDTH - LEFT - RIGHT) };
}

function words({ value, low, high }) {
  if (value === null) return "nothing yet";
  return low === null ? percent(value) : `${percent(value)} (${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)})`;
}
