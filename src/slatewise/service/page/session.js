/* Who is here and what is on the table, shared by all tabs of the browser and kept over a reload. */

import { browser, newId } from "./storage.js";

const NAME = "slatewise.session";
const listeners = new Set();

/** What is known of a slate that was just served: ids of its items by reaction, those seen, how many of these the
    service has been told of. */
export const UNTOUCHED = { liked: [], disliked: [], owned: [], seen: [], told: 0 };

/** The session: user, what they said of earlier slates that they know, the categories they want more or less of (with
    the ids of the events that say so, oldest first), policy and diversity (null: as served), round
    (from 1), slate, what the person did with it, and the request for a slate that has not been answered yet. */
export function session() {
  return parsed(browser.get(NAME)) ?? change(fresh());
}

/** Change parts of the session; returns the whole. */
export function change(parts) {
  const whole = { ...(parsed(browser.get(NAME)) ?? fresh()), ...parts };
  browser.set(NAME, JSON.stringify(whole));
  return whole;
}

/** Become someone new, with the settings kept. */
export function startOver() {
  const { policy, diversity } = session();
  return change({ ...fresh(), policy, diversity });
}

/** Hear of changes made in other tabs. */
export function onChangeElsewhere(listener) {
  listeners.add(listener);
}

function fresh() {
  const person = { user: `visitor-${newId()}`, known: [], wishes: [], policy: null, diversity: null };
  return { ...person, round: 1, slate: null, ...UNTOUCHED, asked: null };
}

function parsed(text) {
  try {
    const found = { ...UNTOUCHED, known: [], wishes: [], ...JSON.parse(text) };
    const lists = [found.liked, found.disliked, found.owned, found.seen, found.known, found.wishes];
    const isWhole = typeof found.user === "string" && lists.every(Array.isArray);
    return isWhole && (found.slate === null || Array.isArray(found.slate.items)) ? found : null;
  } catch {
    return null;
  }
}

function tell() {
  for (const listener of listeners) listener();
}

addEventListener("storage", (event) => (event.key === NAME || event.key === null) && tell());
addEventListener("pageshow", (event) => event.persisted && tell());
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && tell());
