/* Policies side by side: what each would show the same person now. Nothing of it is recorded. */

import { askPatiently } from "./api.js";
import { reasonWords } from "./cards.js";
import { hueOf } from "./color.js";
import { element, show } from "./dom.js";
import { tile } from "./tile.js";
import { nameAndYear } from "./titles.js";
import { isCalibrated, policyName, policySummary, varietyWords } from "./words.js";

export const COMPARED = ["dc2b-calibrated", "dc2b", "popular"];
const LONG = 120;
let newest = 0;

/** Draw one column per policy; `choose` is called with the policy that the person wants from now on. */
export async function drawComparison(container, policies, slateOptions, choose) {
  const turn = ++newest;
  const compared = policies
    .filter((one) => COMPARED.includes(one.name))
    .sort((one, other) => COMPARED.indexOf(one.name) - COMPARED.indexOf(other.name));
  if (!container.children.length) show(container, compared.map(waiting));
  const slates = await Promise.all(compared.map((one) => preview(one, slateOptions)));
  if (turn === newest)
    show(
      container,
      compared.map((one, place) => column(one, slates[place], slates, choose)),
    );
}

async function preview(policy, slateOptions) {
  try {
    return await askPatiently("POST", "v1/slates", { ...slateOptions, policy: policy.name, preview: true });
  } catch (problem) {
    return { items: [], problem };
  }
}

function column(policy, slate, slates, choose) {
  const heading = element("h3", {}, policyName(policy.name));
  const summary = element("p", { class: "note" }, policySummary(policy.name));
  if (slate.problem)
    return element("section", { class: "column" }, heading, summary, element("p", {}, slate.problem.message));
  const others = new Set(slates.filter((one) => one !== slate).flatMap((one) => one.items.map((item) => item.id)));
  return element(
    "section",
    { class: "column" },
    heading,
    summary,
    element("p", { class: "sum" }, sums(slate)),
    element(
      "ol",
      {},
      slate.items.map((item) => entry(item, slate.items, !others.has(item.id))),
    ),
    element(
      "button",
      { class: "quiet", type: "button", onclick: () => choose(policy.name) },
      "Let this one pick",
    ),
  );
}

function sums(slate) {
  const chances = slate.items.map((item) => item.probability);
  const variety = `Variety ${varietyWords(slate)}`;
  if (!isCalibrated(slate.policy) || chances.includes(null)) return variety;
  return `${variety} · about ${chances.reduce((sum, one) => sum + one, 0).toFixed(1)} likes expected`;
}

function entry(item, items, isOnlyHere) {
  const { name, year } = nameAndYear(item.title);
  return element(
    "li",
    {},
    element("span", { class: "thumb" }, tile(item)),
    element(
      "span",
      { class: "entry" },
      element(
        "span",
        {},
        element("span", { class: name.length > LONG ? "name long" : "name", dir: "auto", title: name }, name),
        year && element("span", { class: "year" }, ` ${year}`),
        isOnlyHere && element("span", { class: "only" }, "only here"),
      ),
      element("span", { class: "hint" }, dots(item.categories), reasonWords(item, items)),
    ),
  );
}

function dots(categories) {
  return categories
    .slice(0, 4)
    .map((name) => element("span", { class: "swatch", title: name, "--hue": hueOf(name), "aria-hidden": "true" }));
}

function waiting() {
  return element(
    "section",
    { class: "column", "aria-hidden": "true" },
    Array.from({ length: 6 }, () => element("div", { class: "bone wide" })),
  );
}
