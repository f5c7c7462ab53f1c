/* The operators' view: asks for the figures of the moment every two seconds while someone looks. */

import { ask } from "./api.js";
import { byId, element, show } from "./dom.js";
import { intervals } from "./intervals.js";
import { sparkline } from "./sparkline.js";
import { bytes, count, duration } from "./words.js";

const EVERY = 2000;
const KEPT = 90;
const history = { slates: [], feedback: [] };
let paused = false;
let timer = null;

async function look() {
  clearTimeout(timer);
  try {
    drawAll(await ask("GET", "v1/live"));
    tell(null);
  } catch (problem) {
    tell(problem);
  }
  plan();
}

function plan() {
  clearTimeout(timer);
  if (!paused && document.visibilityState === "visible") timer = setTimeout(look, EVERY);
}

function tell(problem) {
  const banner = byId("banner");
  banner.hidden = problem === null;
  banner.textContent = problem === null ? "" : [problem.message, problem.detail].filter(Boolean).join(": ");
}

function drawAll(live) {
  for (const [name, value] of [
    ["slates", live.slates_per_second],
    ["feedback", live.feedback_per_second],
  ]) {
    history[name] = [...history[name], value].slice(-KEPT);
  }
  byId("when").textContent = `Up for ${duration(live.uptime)}. Rates are means over the last minute.`;
  const users = live.policies.reduce((sum, one) => sum + one.users, 0);
  show(
    byId("figures"),
    rate("Slates per second", history.slates),
    rate("Feedback per second", history.feedback),
    fact(
      "Slates closed",
      live.policies.reduce((sum, one) => sum + one.slates, 0).toLocaleString("en"),
      `of ${count(users, "user")}`,
    ),
    fact("Beliefs rebuilt", live.rebuilt.toLocaleString("en"), "since the start"),
  );
  show(
    byId("policies"),
    intervals("Click rate", live.policies, "click_rate"),
    intervals("Diversity", live.policies, "diversity"),
  );
  show(byId("latency"), latencies(live.latency));
  show(
    byId("store"),
    Object.entries(live.store).map(([name, value]) => entry(name, value)),
  );
}

function rate(name, values) {
  const now = values.at(-1);
  return element(
    "div",
    { class: "panel rate" },
    element("h2", {}, name),
    element("p", { class: "big" }, now.toFixed(now < 10 ? 2 : 0)),
    sparkline(name, values, EVERY / 1000),
  );
}

function fact(name, value, words) {
  return element(
    "div",
    { class: "panel rate" },
    element("h2", {}, name),
    element("p", { class: "big" }, value),
    element("p", { class: "note" }, words),
  );
}

function latencies(routes) {
  if (!routes.length) return element("p", { class: "note" }, "No requests yet.");
  const slowest = Math.max(...routes.map((one) => one.p99), 1e-6);
  const head = ["Route", "Requests", "p50", "p95", "p99", ""].map((name) =>
    name ? element("th", { scope: "col" }, name) : element("td", {}),
  );
  const rows = routes.map((one) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("code", {}, one.route)),
      element("td", {}, one.requests.toLocaleString("en")),
      [one.p50, one.p95, one.p99].map((value) => element("td", {}, value.toFixed(value < 10 ? 1 : 0))),
      element("td", { class: "range" }, range(one, slowest)),
    ),
  );
  return element(
    "table",
    { class: "plain-table" },
    element("thead", {}, element("tr", {}, head)),
    element("tbody", {}, rows),
  );
}

function range({ p50, p95, p99 }, slowest) {
  const bar = (name, value) => element("span", { class: name, "--value": value / slowest });
  return element(
    "span",
    { class: "latency", "aria-hidden": "true" },
    bar("p99", p99),
    bar("p95", p95),
    bar("p50", p50),
  );
}

function entry(name, value) {
  const isSize = name.endsWith("bytes") && typeof value === "number";
  const words = isSize ? bytes(value) : typeof value === "number" ? value.toLocaleString("en") : value;
  const label = name === "bytes" ? "size" : name.replace(/_bytes$/, "").replaceAll("_", " ");
  return element("div", {}, element("dt", {}, label), element("dd", {}, words));
}

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  if (paused) plan();
  else look();
});
document.addEventListener("visibilitychange", () =>
  document.visibilityState === "visible" && !paused ? look() : plan(),
);
look();
