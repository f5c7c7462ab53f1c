/* Feedback on its way: kept until the service has acknowledged it, and sent again under the same event id.

   Each event has a key of its own, so tabs cannot overwrite each other's. Clicks and retractions add up on the server,
   so neither their order nor a repetition matters. */

import { askPatiently } from "./api.js";
import { withLock, browser, newId } from "./storage.js";

const PREFIX = "slatewise.event.";
let sequence = 0;

/** Keep an event to be sent. */
export function put(event) {
  const place = `${Date.now().toString(36)}.${String(sequence++).padStart(6, "0")}.${newId().slice(0, 8)}`;
  browser.set(PREFIX + place, JSON.stringify({ event_id: newId(), ...event }));
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
      if (problem) refused.push({ problem, slateId: slateOf(text) });
      if (problem && !isFinal(problem)) break;
      browser.remove(name);
    }
  });
  return refused;
}

async function deliver(text) {
  try {
    await askPatiently("POST", "v1/feedback", JSON.parse(text));
    return null;
  } catch (problem) {
    return problem;
  }
}

function slateOf(text) {
  try {
    return JSON.parse(text).slate_id;
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
