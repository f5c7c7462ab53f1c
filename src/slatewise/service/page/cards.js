/* Cards of a slate: what it is, why it is here, and what one can say about it; a click on the card is a like. */

import { hueOf } from "./color.js";
import { calm, element, svg } from "./dom.js";
import { markReactions, reactionButtons } from "./reactions.js";
import { session } from "./session.js";
import { tile } from "./tile.js";
import { nameAndYear } from "./titles.js";
import { isCalibrated, list, percent } from "./words.js";

const MOST_CHIPS = 4;
const HEART = "M8 13.6C3.8 10.6 2 8.4 2 6a3.2 3.2 0 0 1 6-1.5A3.2 3.2 0 0 1 14 6c0 2.4-1.8 4.6-6 7.6z";
const ICONS = {
  learned: HEART,
  asked: "M7 2.5h2V7h4.5v2H9v4.5H7V9H2.5V7H7z",
  popular: "M8 1.8l1.9 4 4.3.6-3.1 3 .8 4.3L8 11.6l-3.9 2.1.8-4.3-3.1-3 4.3-.6z",
  exploring: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zm2.9 3.6L9.3 9.3l-4.2 1.6 1.6-4.2z",
  variety: "M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM11.5 8.6a2.9 2.9 0 1 1 0 5.8 2.9 2.9 0 0 1 0-5.8z",
  pinned: "M6 1.5h4l-.6 5 2.6 2.4H8.7L8 14.5l-.7-5.6H4l2.6-2.4z",
  boosted: "M8 1.8l5.2 5.6h-3v6.8H5.8V7.4h-3z",
  ranked: "M2 9h3v5H2zM6.5 5h3v9h-3zM11 2h3v12h-3z",
};

/** Lay out the cards of a slate; an item that was there before glides to its new place. */
export function layCards(container, react) {
  const { items } = session().slate;
  const before = new Map([...container.children].map((one) => [one.dataset.key, one.getBoundingClientRect()]));
  const cards = items.map((item) => card(item, items, react));
  container.replaceChildren(...cards);
  markReactions(container, session());
  if (!calm()) cards.forEach((one, place) => enter(one, before.get(one.dataset.key), place));
}

/** Arrow keys move between cards, as in a grid, from a button to the same button of the other card. */
export function moveBetweenCards(event) {
  const cards = event.currentTarget;
  const buttons = [...cards.querySelectorAll(`button.${event.target.className}`)];
  const at = buttons.indexOf(event.target);
  if (at < 0) return;
  const columns = getComputedStyle(cards).gridTemplateColumns.split(" ").length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
  const next = buttons[at + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

/** Cards without content, for the time until a slate arrives. */
export function layPlaceholders(container, number) {
  const line = (size) => element("div", { class: `bone ${size}` });
  const one = () =>
    element(
      "li",
      { class: "card waiting", "aria-hidden": "true" },
      line("picture"),
      line("wide"),
      line("short"),
      line("wide"),
    );
  container.replaceChildren(...Array.from({ length: number }, one));
}

/** Categories as small chips, the rest counted. */
export function chips(categories, most = MOST_CHIPS) {
  if (!categories.length) return null;
  const shown = categories
    .slice(0, most)
    .map((name) => element("li", { class: "chip", "--hue": hueOf(name), title: name }, element("span", {}, name)));
  const rest = categories.slice(most);
  if (rest.length) {
    const more = element("span", { "aria-hidden": "true" }, `+${rest.length}`);
    shown.push(element("li", { class: "chip more", title: rest.join(", ") }, more, unseen(`and ${list(rest)}`)));
  }
  return element("ul", { class: "chips", "aria-label": "Categories" }, shown);
}

/** Put the categories first that the person likes, then those that few cards have. */
export function orderChips(container, person) {
  const lifts = new Map(person.categories.map((one) => [one.name, one.clicked && one.lift > 0 ? one.lift : 0]));
  const { items } = session().slate;
  const cards = new Map([...container.children].map((one) => [one.dataset.key, one]));
  for (const item of items) {
    const place = cards.get(JSON.stringify(item.id))?.querySelector(".facts");
    if (place) place.replaceChildren(...[chips(distinguishing(item, items, lifts))].filter(Boolean));
  }
}

function distinguishing(item, items, lifts = new Map()) {
  const common = (name) => items.filter((one) => one.categories.includes(name)).length;
  return [...item.categories].sort((one, other) => (lifts.get(other) ?? 0) - (lifts.get(one) ?? 0) || common(one) - common(other));
}

/** Why an item is on a slate, in words; `items` are all items of the slate. */
export function reasonWords(item, items) {
  if (item.reason === "learned") return learnedWords(item);
  if (item.reason === "asked") return [`You asked for ${item.because_title}`];
  if (item.reason === "variety") return [varietyReason(item, items)];
  if (item.reason === "exploring") return ["Trying it out: I am not sure about this one"];
  return [{ popular: "Popular with everyone", pinned: "Picked by hand", boosted: "Featured" }[item.reason] ?? "Next best"];
}

function learnedWords(item) {
  if (!item.because_title) return ["Fits what I know about you"];
  const words = session().known.includes(item.because) ? "Because you’ve seen " : "Because you liked ";
  return [words, element("cite", { dir: "auto", title: item.because_title }, nameAndYear(item.because_title).name)];
}

function varietyReason(item, items) {
  const own = onlyHere(item, items);
  return own.length ? `For variety: the only ${list(own)}` : "For variety";
}

/** The categories of an item that no other item of the slate has. */
function onlyHere(item, items) {
  const others = new Set(items.filter((one) => one !== item).flatMap((one) => one.categories));
  return item.categories.filter((name) => !others.has(name));
}

function card(item, items, react) {
  const { name, year } = nameAndYear(item.title);
  return element(
    "li",
    { class: "card", "data-key": JSON.stringify(item.id), onclick: pressLike },
    element("div", { class: "picture" }, tile(item)),
    element(
      "div",
      { class: "what" },
      element("h2", { dir: "auto", title: item.title }, name, year && element("span", { class: "year" }, ` (${year})`)),
      element("div", { class: "facts" }, chips(distinguishing(item, items))),
    ),
    element("dl", { class: "why" }, reason(item, items), chance(item), difference(item)),
    reactionButtons(item, react),
  );
}

/** A click anywhere on the card counts too, unless it ended a selection of text. */
function pressLike(event) {
  if (event.target.closest("button") || String(getSelection())) return;
  event.currentTarget.querySelector(".like").click();
}

function reason(item, items) {
  const icon = svg(
    "svg",
    { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" },
    svg("path", { d: ICONS[item.reason] ?? ICONS.ranked }),
  );
  const kind = item.reason in ICONS ? item.reason : "ranked";
  return row(`reason ${kind}`, "Why it is here", icon, element("span", {}, reasonWords(item, items)));
}

/** How likely a like is, as a dot in a band of one standard deviation; only where that can be taken at its word. */
function chance(item) {
  if (item.probability === null || !isCalibrated(session().slate.policy)) return null;
  const [value, low, high] = [0, -1, 1].map((sign) => clamped(item.probability + sign * (item.deviation ?? 0)));
  const bar = element(
    "span",
    { class: "bar", "--value": value, "--low": low, "--high": high, "aria-hidden": "true" },
    element("span", { class: "band" }),
    element("span", { class: "dot" }),
  );
  const number = value > 0.95 ? "more than 95" : value < 0.01 ? "fewer than 1" : `about ${Math.round(100 * value)}`;
  const hint = `Of a hundred such cards you would like ${number}; it may be ${percent(low)} to ${percent(high)}.`;
  return row("chance", "Chance you like it", bar, element("span", { class: "value", title: hint }, chanceWords(value), unseen(`. ${hint}`)));
}

/** Nobody is that sure of a like: beyond 95 % and below 1 % only the side is said. */
function chanceWords(share) {
  if (share > 0.95) return "> 95 %";
  return share < 0.01 ? "< 1 %" : percent(share);
}

function clamped(share) {
  return Math.min(Math.max(share, 0), 1);
}

/** How unlike the other cards it is. */
function difference(item) {
  if (item.distance === null) return null;
  const bar = element(
    "span",
    { class: "bar plain", "--value": item.distance, "aria-hidden": "true" },
    element("span", { class: "band" }),
  );
  return row("difference", "Unlike the rest", bar, element("span", { class: "value" }, percent(item.distance)));
}

function row(kind, term, ...content) {
  const hidden = kind.startsWith("reason") ? "unseen" : null;
  return element("div", { class: kind }, element("dt", { class: hidden }, term), element("dd", {}, content));
}

function unseen(words) {
  return element("span", { class: "unseen" }, words);
}

function enter(one, from, place) {
  const to = one.getBoundingClientRect();
  const start = from
    ? { transform: `translate(${from.left - to.left}px, ${from.top - to.top}px)` }
    : { opacity: 0, transform: "translateY(12px)" };
  one.animate([start, { opacity: 1, transform: "none" }], {
    duration: 380,
    delay: from ? 0 : 30 * place,
    easing: "cubic-bezier(.2,.7,.2,1)",
    fill: "backwards",
  });
}
