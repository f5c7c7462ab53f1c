/* A person's taste in words: what they like more than most people do, and how sure that is. */

import { element, show } from "./dom.js";
import { list } from "./words.js";

const MOST = 8;
const CLEAR = 0.35;
const MUCH = 1.2;
const REACH = 3;
let all = false;

/** One line: what this person likes more and less than most people, led by what they liked. */
export function tasteLine(person) {
  const rows = ordered(person);
  const more = rows.filter((one) => one.clicked && isClear(one) && one.lift > 0).slice(0, 3);
  const less = rows.filter((one) => isClear(one) && one.lift < 0).slice(-2);
  if (more.length) {
    const rest = less.length ? `, less ${list(less.map(named).reverse())}` : "";
    return `You like more ${list(more.map(named))} than most people${rest}.`;
  }
  return person.clicks ? "You like a bit of everything so far. A few more likes will tell." : "";
}

/** Draw the categories of a person: those they like more than most people first, then those they like less. */
export function drawTaste(container, person) {
  if (!person.categories.length)
    return show(container, note("This catalog has no categories, so there is no taste to name."));
  if (!person.slates)
    return show(container, note("Nothing yet. Like what appeals to you and ask for more: then I have something to go by."));
  const rows = ordered(person);
  if (!rows.length) return drawCounts(container, person);
  const shown = all || rows.length <= MOST ? rows : [...rows.slice(0, MOST - 3), ...rows.slice(-3)];
  show(
    container,
    element("ul", { class: "tastes" }, shown.map(row)),
    note("The pale band is how unsure I am: the longer, the less I know."),
    rows.length > MOST && toggleButton(container, person, rows.length),
  );
}

/** Liked categories lead among equals; the service's lifts are relative to the person's own mean. */
function ordered(person) {
  const known = person.categories.filter((one) => one.lift !== null);
  return known.sort((one, other) => score(other) - score(one));
}

function score({ lift, clicked }) {
  return lift + (clicked && lift > 0 ? 0.25 : 0);
}

function isClear({ lift, deviation }) {
  return Math.abs(lift) >= Math.max(CLEAR, 0.5 * deviation);
}

function row(one) {
  const at = (value) => Math.min(Math.max((value + REACH) / (2 * REACH), 0), 1);
  const [low, high] = [at(one.lift - one.deviation), at(one.lift + one.deviation)];
  return element(
    "li",
    { class: one.lift >= 0 ? "more" : "less" },
    element("span", { class: "name", title: one.name }, one.name),
    element(
      "span",
      { class: "scale", "--low": low, "--high": high, "--value": at(one.lift), "aria-hidden": "true" },
      element("span", { class: "band" }),
      element("span", { class: "dot" }),
    ),
    element("span", { class: "words" }, words(one)),
    element("span", { class: "unseen" }, `, ${one.clicked} liked of ${one.shown} shown`),
  );
}

/** "much more", "more", "as most people", "less", "much less"; "too early to say" while nothing is clear. */
function words(one) {
  if (!isClear(one)) return one.deviation > 0.6 ? "too early to say" : "like most people";
  return `${Math.abs(one.lift) >= MUCH ? "much " : ""}${one.lift > 0 ? "more" : "less"}`;
}

function named({ name }) {
  return name;
}

function toggleButton(container, person, number) {
  const toggle = () => {
    all = !all;
    drawTaste(container, person);
    container.querySelector("button")?.focus();
  };
  return element("button", { class: "quiet", type: "button", onclick: toggle }, all ? "Show fewer" : `Show all ${number}`);
}

/** Where the policy has no belief: what was shown and liked. */
function drawCounts(container, person) {
  const rows = person.categories.filter((one) => one.shown).sort((one, other) => other.clicked - one.clicked);
  show(
    container,
    note("Whoever picks now does not learn about you. So far:"),
    element(
      "ul",
      { class: "tastes counts" },
      rows.slice(0, MOST).map((one) =>
        element("li", {}, element("span", { class: "name" }, one.name), element("span", { class: "words" }, `${one.clicked} of ${one.shown} liked`)),
      ),
    ),
  );
}

function note(text) {
  return element("p", { class: "note" }, text);
}
