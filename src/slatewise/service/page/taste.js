/* A person's taste in words: what they like more than most people do, how sure that is, and wishes for more or less. */

import { element, show } from "./dom.js";
import { list } from "./words.js";

const MOST = 8;
/* Lifts are in units of how much people differ, and normal. "More" is said at odds of three to one, "perhaps more" at two
   to one, "much more" also beyond 84 of 100 people (docs/method.md has how often that was true), "like most people" at
   nine to one that the person is among the middle 68. */
const CLEAR = 0.674;
const PERHAPS = 0.431;
const MUCH = 1;
const SURE = 0.6;
const REACH = 3;
let all = false;

/** One line: what this person likes more and less than most people, led by what they liked. */
export function tasteLine(person) {
  const rows = ordered(person);
  const more = rows.filter(leads).slice(0, 3);
  const perhaps = rows.filter((one) => one.clicked && one.lift >= PERHAPS * one.deviation).slice(0, 3);
  const less = rows.filter((one) => isClear(one) && one.lift < 0).slice(-2);
  if (more.length) {
    const rest = less.length ? `, less ${list(less.map(named).reverse())}` : "";
    return `You like more ${list(more.map(named))} than most people${rest}.`;
  }
  if (perhaps.length) return `You seem to like more ${list(perhaps.map(named))} than most people.`;
  return person.clicks ? "Too early to say what you like most. A few more likes will tell." : "";
}

/** Draw the categories of a person: those they like more than most people first, then those they like less.

    `wishes` are those that stand; `ask` is called with a category and "more" or "less". */
export function drawTaste(container, person, { wishes, ask }) {
  if (!person.categories.length)
    return show(container, note("This catalog has no categories, so there is no taste to name."));
  if (!person.slates && !wishes.length)
    return show(container, note("Nothing yet. Like what appeals to you and ask for more: then I have something to go by."));
  const rows = ordered(person);
  if (!rows.length) return drawCounts(container, person);
  const wished = new Map(wishes.map(({ category, kind }) => [category, kind]));
  const isShown = ({ name }, place) => all || place < MOST - 3 || place >= rows.length - 3 || wished.has(name);
  const shown = rows.filter(isShown);
  const focused = document.activeElement?.dataset.wish;
  show(
    container,
    element(
      "ul",
      { class: "tastes" },
      shown.map((one) => row(one, wished.get(one.name), ask)),
    ),
    wishes.length > 0 && undoLine(wishes.at(-1), ask),
    note("The pale band is how unsure I am: the longer, the less I know. Press − or + to have less or more of something."),
    rows.length > MOST && toggleButton(container, person, { wishes, ask }),
  );
  if (focused) [...container.querySelectorAll("[data-wish]")].find((one) => one.dataset.wish === focused)?.focus();
}

function undoLine({ category, kind }, ask) {
  const undo = () => ask(category, kind);
  return element(
    "p",
    { class: "note" },
    `You asked for ${kind} ${category}. `,
    element("button", { class: "text", type: "button", onclick: undo }, "Undo"),
  );
}

/** What is clearly liked more leads, if something of it was liked; the rest by the service's lifts. */
function ordered(person) {
  const known = person.categories.filter((one) => one.lift !== null);
  return known.sort((one, other) => leads(other) - leads(one) || other.lift - one.lift);
}

function leads(one) {
  return one.clicked > 0 && one.lift > 0 && isClear(one) ? 1 : 0;
}

function isClear({ lift, deviation }) {
  return Math.abs(lift) >= CLEAR * deviation;
}

function row(one, wished, ask) {
  const at = (value) => Math.min(Math.max((value + REACH) / (2 * REACH), 0), 1);
  const [low, high] = [at(one.lift - one.deviation), at(one.lift + one.deviation)];
  return element(
    "li",
    { class: one.lift >= 0 ? "more" : "less" },
    element("span", { class: "name", title: one.name }, one.name),
    wishButton(one.name, "less", wished, ask),
    element(
      "span",
      { class: "scale", "--low": low, "--high": high, "--value": at(one.lift), "aria-hidden": "true" },
      element("span", { class: "band" }),
      element("span", { class: "dot" }),
    ),
    wishButton(one.name, "more", wished, ask),
    element("span", { class: "words" }, words(one)),
    element("span", { class: "unseen" }, `, ${one.clicked} liked of ${one.shown} shown`),
  );
}

function wishButton(category, kind, wished, ask) {
  return element(
    "button",
    {
      class: `wish ${kind}`,
      type: "button",
      title: wished === kind ? `Take back: ${kind} ${category}` : `${kind === "more" ? "More" : "Less"} ${category}`,
      "aria-label": `${kind === "more" ? "More" : "Less"} ${category}`,
      "aria-pressed": String(wished === kind),
      "data-wish": `${kind} ${category}`,
      onclick: () => ask(category, kind),
    },
    kind === "more" ? "+" : "−",
  );
}

/** "much more", "more", "perhaps more", "like most people" and so on; "too early to say" while nothing is clear. */
function words(one) {
  const side = one.lift > 0 ? "more" : "less";
  if (isClear(one)) return `${Math.abs(one.lift) >= MUCH ? "much " : ""}${side}`;
  if (Math.abs(one.lift) >= PERHAPS * one.deviation) return `perhaps ${side}`;
  return one.deviation > SURE ? "too early to say" : "like most people";
}

function named({ name }) {
  return name;
}

function toggleButton(container, person, controls) {
  const toggle = () => {
    all = !all;
    drawTaste(container, person, controls);
    container.querySelector(".toggle")?.focus();
  };
  const words = all ? "Show fewer" : `Show all ${person.categories.length}`;
  return element("button", { class: "quiet toggle", type: "button", onclick: toggle }, words);
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
