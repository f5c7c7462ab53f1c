/* Feedback on its way: kept until the service has acknowledged it, and sent again under the same event id.

   Each event has a key of its own, so tabs cannot overwrite each other's. Events are sent one after the other, so they
   arrive in the order in which they were made; an event that is sent twice counts once. */

import { ask, askPatiently } from "./api.js";
import { withLock, browser, newId } from "./storage.js";

const PREFIX = "slatewise.event.";
let sequence = 0;

/** Keep an event to be sent, on a slate or about an item on its own; returns it with its id. */
export function put(event) {
  const place = `${Date.now().toString(36)}.${String(sequence++).padStart(6, "0")}.${newId().slice(0, 8)}`;
  const whole = { event_id: newId(), ...event };
  browser.set(PREFIX + place, JSON.stringify(whole));
  return whole;
}

/** How many events wait. */
export function waiting() {
  return names().length;
}

/** Drop what waits for someone who is to be forgotten. */
export function clear() {
  names().forEach(browser.remove);
}

/** Send everything that waits, oldest first; returns the problems of what the service refused, with their slate ids. */
export async function send() {
  const refused = [];
  await withLock("outbox", async () => {
    for (let [name] = names(); name !== undefined; [name] = names()) {
      const text = browser.get(name);
      const problem = await deliver(text);
      if (problem) refused.push({ problem, slateId: parsed(text)?.slate_id });
      if (problem && !isFinal(problem)) break;
      browser.remove(name);
    }
  });
  return refused;
}

/** Send an event from a page that goes away: nothing is waited for, and the next visit sends it again. */
export function sendAtOnce(event) {
  ask("POST", pathOf(event), event).catch(() => {});
}

async function deliver(text) {
  try {
    const event = JSON.parse(text);
    await askPatiently("POST", pathOf(event), event);
    return null;
  } catch (problem) {
    return problem;
  }
}

function pathOf(event) {
  return event.slate_id ? "v1/feedback" : "v1/events";
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Whether an event will never be taken: the service does not know its slate, or it is not an event. */
function isFinal(problem) {
  return problem instanceof SyntaxError || [400, 404, 409, 413, 422].includes(problem.status);
}

function names() {
  return browser
    .names()
    .filter((name) => name.startsWith(PREFIX))
    .sort();
}
