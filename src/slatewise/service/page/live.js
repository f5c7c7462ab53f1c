/* The operators' view: asks for the figures of the moment every two seconds while someone looks. */

import { ask } from "./api.js";
import { byId, element, show } from "./dom.js";
import { intervals } from "./intervals.js";
import { calibration, rates, trainings, verdicts } from "./live_panels.js";
import { sparkline } from "./sparkline.js";
import { bytes, count, duration, namePolicies } from "./words.js";

const EVERY = 2000;
const STEP = 10;
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
  byId("when").textContent = `Up for ${duration(live.uptime)}. Figures of the last minute, curves of the last hour.`;
  const past = (name) => live.history.map((point) => point[name] ?? 0);
  const users = live.policies.reduce((sum, one) => sum + one.users, 0);
  show(
    byId("figures"),
    rate("Slates per second", live.slates_per_second, past("slates_per_second")),
    rate("Feedback per second", live.feedback_per_second, past("feedback_per_second")),
    rate("Slowest 1 % (ms)", live.history.at(-1)?.p99 ?? 0, past("p99")),
    rate("Clicked (%)", 100 * (live.history.at(-1)?.click_rate ?? 0), past("click_rate")),
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
    intervals("Variety", live.policies, "diversity"),
  );
  show(byId("verdicts"), verdicts(live.policies));
  show(byId("rates"), rates(live.rates));
  show(byId("calibration"), calibration(live.calibration));
  show(byId("trainings"), trainings(live.trainings));
  show(byId("latency"), latencies(live.latency));
  show(
    byId("store"),
    Object.entries(live.store).map(([name, value]) => entry(name, value)),
  );
}

function rate(name, now, values) {
  return element(
    "div",
    { class: "panel rate" },
    element("h2", {}, name),
    element("p", { class: "big" }, now.toFixed(now < 10 ? 2 : 0)),
    sparkline(name, values.length ? values : [0], STEP),
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

const STORE_WORDS = {
  bytes: "size",
  wal_bytes: "write-ahead log",
  free_bytes: "free on disk",
  backlog: "writes waiting",
  checkpoint_lag_pages: "pages to copy from the log",
};

function entry(name, value) {
  const isSize = name.endsWith("bytes") && typeof value === "number";
  const words = isSize ? bytes(value) : typeof value === "number" ? value.toLocaleString("en") : value;
  const label = STORE_WORDS[name] ?? name.replace(/_bytes$/, "").replaceAll("_", " ");
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
ask("GET", "v1/policies").then(namePolicies, () => {}).finally(look);
