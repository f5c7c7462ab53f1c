/* Panels of the operators' view about learning: item rates, calibration, experiments, retraining. */

import { element, figure, svg } from "./dom.js";
import { count, percent, policyName } from "./words.js";

const SIZE = 260;
const EDGE = 34;
const OUTCOMES = { accepted: "Accepted", refused: "Refused", failed: "Failed", running: "Running", interrupted: "Interrupted" };

/** Items with the least certain rates, the newest first. */
export function rates(items) {
  if (!items.length) return note("No items yet.");
  const most = Math.max(...items.map((one) => one.high), 0.01);
  const rows = items.slice(0, 12).map((one) =>
    element(
      "li",
      {},
      element("span", { class: "name", dir: "auto", title: one.title }, one.title, one.is_new && element("span", { class: "only" }, "new")),
      element(
        "span",
        { class: "bar", "--value": one.rate / most, "--low": one.low / most, "--high": one.high / most, "aria-hidden": "true" },
        element("span", { class: "band" }),
        element("span", { class: "dot" }),
      ),
      element("span", { class: "value" }, `${share(one.rate)} (${share(one.low)} to ${share(one.high)})`),
    ),
  );
  return element("ul", { class: "rates" }, rows);
}

/** What was predicted against what was clicked: on the diagonal, probabilities can be taken at their word. */
export function calibration(bins) {
  if (!bins.length) return note("Nothing to compare yet: this needs slates with feedback.");
  const at = (value) => EDGE + value * (SIZE - EDGE - 6);
  const up = (value) => SIZE - at(value);
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "chart calibration" },
    [0, 0.5, 1].map((tick) => [
      svg("path", { d: `M${at(0)} ${up(tick)}H${at(1)}M${at(tick)} ${up(0)}V${up(1)}`, class: "rule" }),
      svg("text", { x: at(tick), y: SIZE - 16, "text-anchor": "middle", class: "small" }, percent(tick)),
      svg("text", { x: EDGE - 5, y: up(tick) + 4, "text-anchor": "end", class: "small" }, percent(tick)),
    ]),
    svg("path", { d: `M${at(0)} ${up(0)}L${at(1)} ${up(1)}`, class: "axis dashed" }),
    bins.map((one) => [
      svg("path", { d: `M${at(one.said)} ${up(one.low)}V${up(one.high)}`, class: "interval" }),
      svg("circle", { cx: at(one.said), cy: up(one.clicked), r: 4, class: "mean" }),
    ]),
    svg("text", { x: SIZE / 2 + EDGE / 2, y: SIZE - 2, "text-anchor": "middle", class: "small" }, "predicted"),
    svg("text", { x: at(0) + 4, y: up(1) + 10, class: "small" }, "clicked"),
  );
  const rows = bins.map((one) => [share(one.said), `${share(one.clicked)} (${share(one.low)} to ${share(one.high)})`, Math.round(one.n)]);
  return figure(drawing, "Probabilities and clicks", ["Predicted", "Clicked", "Items"], rows);
}

/** What may be concluded about each policy now. */
export function verdicts(policies) {
  const compared = policies.filter((one) => one.verdict);
  if (!compared.length) return null;
  return element(
    "ul",
    { class: "verdicts" },
    compared.map((one) =>
      element("li", {}, element("strong", {}, policyName(one.policy)), " ", one.verdict, element("p", { class: "note" }, evidence(one))),
    ),
  );
}

/** The difference to the control, by an interval that holds whenever somebody looks, and how long it takes to know more. */
function evidence({ difference: { value, low, high }, control, slates_needed: slates, days_needed: days }) {
  if (value === null) return "";
  const range = low === null ? "" : ` (${points(low)} to ${points(high)}, at any time)`;
  const wait = days === null ? slates && `about ${count(slates, "more slate")} to know` : `about ${count(Math.ceil(days), "more day")} to know`;
  return [`click rate ${points(value)} points against ${policyName(control)}${range}`, wait].filter(Boolean).join(" · ");
}

/** The latest trainings with the decision of the gate. */
export function trainings(all) {
  if (!all.length) return note("None yet. The setting “retrain” puts training on a schedule.");
  return element("ol", { class: "trainings" }, all.slice(0, 8).map(training));
}

function training(one) {
  const [difference, low, high] = one.difference ?? [];
  const figures = [
    one.people !== null && `judged on ${count(one.people, "person", "people")}`,
    one.difference && `log-loss ${signed(difference)} (${signed(low)} to ${signed(high)})`,
    one.version && `version ${one.version}`,
  ].filter(Boolean);
  return element(
    "li",
    { class: one.outcome },
    element("p", {}, element("strong", {}, OUTCOMES[one.outcome] ?? one.outcome), ` ${new Date(1000 * one.started_at).toLocaleString("en")}`),
    one.words.length > 0 && element("p", {}, one.words.join("; ")),
    figures.length > 0 && element("p", { class: "note" }, figures.join(" · ")),
  );
}

function signed(value) {
  return `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(4)}`;
}

function points(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(1)}`;
}

function share(value) {
  return `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
}

function note(words) {
  return element("p", { class: "note" }, words);
}
