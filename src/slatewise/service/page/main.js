/* The page: draws the session, listens to the person, and keeps what it shows and what is known in step. */

import { ask, askPatiently } from "./api.js";
import { layCards, layPlaceholders, moveBetweenCards, orderChips } from "./cards.js";
import { colorCategories } from "./color.js";
import { COMPARED, drawComparison } from "./compare.js";
import { byId, calm, element, show } from "./dom.js";
import { send, sendAtOnce } from "./outbox.js";
import * as play from "./play.js";
import { markReactions } from "./reactions.js";
import { drawRounds } from "./rounds.js";
import { watchCards } from "./seen.js";
import { change, onChangeElsewhere, session, startOver, UNTOUCHED } from "./session.js";
import { announce, note, problemPanel, watchConnection } from "./status.js";
import { drawTaste, tasteLine } from "./taste.js";
import { count, namePolicies, percent, policyName, policySummary, varietyWords } from "./words.js";

const KNOB_WAIT = 200;
const DEFAULT_DIVERSITY = 0.5;
const cards = byId("cards");
const more = byId("more");
const page = { shown: null, policies: [], turning: null, busy: false, drawBanner: () => {}, stopWatching: () => {} };

/** Draw whatever the session says; cards only if the slate is another one. */
function draw() {
  const { slate, liked, round } = session();
  drawControls();
  if (!slate) return;
  if (page.shown !== slate.slate_id) {
    page.shown = slate.slate_id;
    layCards(cards, reactTo);
    watch(slate.slate_id);
    announce(`Slate ${round}: ${count(slate.items.length, "pick")}, variety ${varietyWords(slate)}`);
    drawPerson();
    compare();
  }
  markReactions(cards, session());
  byId("round").textContent = `Slate ${round}`;
  byId("variety").textContent = varietyWords(slate);
  byId("variety-bar").style.setProperty("--value", slate.variety ?? 0);
  byId("everything").hidden = slate.items.length >= play.PICKS;
  byId("tally").textContent = liked.length ? count(liked.length, "like") : "Nothing liked yet";
}

function reactTo(item, reaction) {
  play.react(item, reaction, page.shown);
  draw();
  deliver();
}

/** Note which cards of a slate are looked at. */
function watch(slateId) {
  page.stopWatching();
  const onSeen = (card) => play.noteSeen(JSON.parse(card.dataset.key), slateId);
  page.stopWatching = watchCards([...cards.children], onSeen);
}

/** Send what waits; a slate that the service no longer knows is replaced by a new one. */
async function deliver() {
  page.drawBanner();
  const refused = await send();
  page.drawBanner();
  if (refused.some((one) => one.problem.status === 404 && one.slateId === session().slate?.slate_id)) {
    note("The service no longer knows this slate, so here is a new one.");
    change({ slate: null, ...UNTOUCHED });
    await work(play.firstSlate);
  } else if (refused.length) {
    const [{ problem }] = refused;
    note([problem.message, problem.detail].filter(Boolean).join(": "));
  }
}

/** Run something that brings a slate, with the page marked as busy and problems shown where the slate would be. */
async function work(action, focus = false) {
  if (page.busy) return;
  setBusy(true);
  if (!session().slate) layPlaceholders(cards, play.PICKS);
  show(byId("problem"));
  try {
    await action();
    if (!session().slate) await play.firstSlate();
    draw();
    if (focus) lookAt(byId("round"));
  } catch (problem) {
    if (!session().slate) show(cards);
    show(
      byId("problem"),
      problemPanel(problem, () => work(action, focus)),
    );
  } finally {
    setBusy(false);
  }
}

function setBusy(busy) {
  page.busy = busy;
  byId("slate").setAttribute("aria-busy", String(busy));
  more.setAttribute("aria-disabled", String(busy));
}

function lookAt(heading) {
  heading.focus({ preventScroll: true });
  const { top } = byId("slate").getBoundingClientRect();
  if (top < 0) scrollBy({ top: top - 12, behavior: calm() ? "auto" : "smooth" });
}

async function drawPerson() {
  const { user, slate } = session();
  const person = await ask("GET", `v1/users/${encodeURIComponent(user)}`).catch((problem) => problem);
  if (session().slate?.slate_id !== slate?.slate_id) return;
  if (person instanceof Error) return show(byId("taste"), element("p", { class: "note" }, person.message));
  byId("taste-line").textContent = tasteLine(person);
  drawTaste(byId("taste"), person, { wishes: session().wishes, ask: askFor });
  drawRounds(byId("rounds"), person);
  if (session().slate) orderChips(cards, person);
}

/** More or less of a category: seen in the panel at once, and on a slate that nobody has touched. */
async function askFor(category, kind) {
  play.wish(category, kind);
  await deliver();
  await drawPerson();
  await settle();
}

async function compare() {
  if (!byId("compare").open) return;
  await send();
  const { slate } = session();
  const instead = slate && !play.isTouched();
  byId("compare-when").textContent = instead
    ? "What each would show you instead of this slate."
    : "What each would show you next.";
  await drawComparison(
    byId("columns"),
    page.policies,
    { ...play.slateOptions(), ...(instead && { replaces: slate.slate_id }) },
    choosePolicy,
  );
}

function drawControls() {
  const { policy, diversity } = session();
  const select = byId("policy");
  const served = page.policies.find((one) => one.name === (policy ?? session().slate?.policy));
  select.value = policy ?? "";
  byId("policy-summary").textContent = served ? policySummary(served.name) : "";
  const turns = served?.has_diversity_knob ?? true;
  byId("knob").disabled = !turns;
  byId("knob-note").textContent = turns ? knobWords(diversity) : `“${policyName(served.name)}” decides this itself.`;
  if (document.activeElement !== byId("knob")) byId("knob").value = diversity ?? DEFAULT_DIVERSITY;
  byId("knob").setAttribute(
    "aria-valuetext",
    diversity === null ? "default" : `${percent(diversity)} towards variety`,
  );
  byId("default-knob").hidden = diversity === null || !turns;
}

function knobWords(diversity) {
  if (diversity === null) return "";
  return play.isTouched() ? "Applies from the next slate, because you have already reacted to this one." : "";
}

function choosePolicy(name) {
  change({ policy: name || null });
  settle();
}

function turnKnob(diversity) {
  change({ diversity });
  drawControls();
  clearTimeout(page.turning);
  page.turning = setTimeout(settle, KNOB_WAIT);
}

/** Apply other settings: at once to a slate nobody has touched, else from the next one. */
async function settle() {
  draw();
  if (play.isTouched()) return announce("Applies from the next slate");
  if (page.busy) page.turning = setTimeout(settle, KNOB_WAIT);
  else await work(play.pickAgain);
}

function becomeNew() {
  startOver();
  page.shown = null;
  show(byId("columns"));
  work(play.firstSlate, true);
}

/** Ask first: what is forgotten is gone. */
function askToForget() {
  const dialog = byId("forget-dialog");
  dialog.returnValue = "keep";
  dialog.onclose = () => dialog.returnValue === "forget" && beForgotten();
  dialog.showModal();
}

async function beForgotten() {
  try {
    await play.forget();
    note("Everything the service knew about you is gone. You are someone new.");
    becomeNew();
  } catch (problem) {
    note(problem.status === 403 ? "This key may not delete users; ask whoever runs the service." : problem.message);
  }
}

async function meetCatalog() {
  const [catalog, policies] = await Promise.all([
    askPatiently("GET", "v1/catalog").catch(() => ({ categories: [], items: 0 })),
    askPatiently("GET", "v1/policies").catch(() =>
      COMPARED.map((name) => ({ name, share: 0, has_diversity_knob: true, summary: "", title: name })),
    ),
  ]);
  colorCategories(catalog.categories);
  page.policies = policies;
  namePolicies(policies);
  const assigned = element("option", { value: "" }, "Chosen for me");
  const offered = policies.filter(({ name, share }) => share > 0 || COMPARED.includes(name) || name === "random");
  show(
    byId("policy"),
    assigned,
    offered.map(({ name }) => element("option", { value: name }, policyName(name))),
  );
  byId("about").textContent = catalog.items
    ? `${count(catalog.items, "item")} in ${count(catalog.categories.length, "category", "categories")}`
    : "";
}

function listen() {
  more.addEventListener("click", () => page.busy || work(() => play.nextSlate(page.shown), true));
  byId("start-over").addEventListener("click", becomeNew);
  byId("forget").addEventListener("click", askToForget);
  byId("policy").addEventListener("change", (event) => choosePolicy(event.target.value));
  byId("knob").addEventListener("input", (event) => turnKnob(Number(event.target.value)));
  byId("default-knob").addEventListener("click", () => turnKnob(null));
  byId("compare").addEventListener("toggle", compare);
  cards.addEventListener("keydown", moveBetweenCards);
  onChangeElsewhere(draw);
  page.drawBanner = watchConnection(() => {
    deliver();
    drawPerson();
  });
  addEventListener("online", deliver);
  addEventListener("pageshow", (event) => event.persisted && deliver());
  document.addEventListener("visibilitychange", () => document.visibilityState === "hidden" && leave(deliver));
  addEventListener("pagehide", () => leave(sendAtOnce));
}

/** Someone who leaves may not come back: what they saw is told now. */
function leave(tell) {
  const event = play.tellSeen();
  if (event) tell(event);
}

listen();
layPlaceholders(cards, play.PICKS);
await meetCatalog();
deliver();
await work(play.firstSlate);
