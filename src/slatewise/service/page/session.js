/* Who is here and what is on the table, shared by all tabs of the browser and kept over a reload. */

import { browser, newId } from "./storage.js";

const NAME = "slatewise.session";
const listeners = new Set();

/** The session: user, round (from 1), slate, liked (item ids of the slate), policy and diversity (null: as served). */
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
  return { user: `visitor-${newId()}`, round: 1, slate: null, liked: [], policy: null, diversity: null };
}

function parsed(text) {
  try {
    const found = JSON.parse(text);
    const isWhole = typeof found.user === "string" && Array.isArray(found.liked);
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
