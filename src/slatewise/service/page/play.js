/* What a person can do: look, react, take back, ask for more, ask for other picks, start over, be forgotten. */

import { ask, askPatiently } from "./api.js";
import { newId, withLock } from "./storage.js";
import { clear, put, send } from "./outbox.js";
import { change, session, startOver, UNTOUCHED } from "./session.js";

export const PICKS = 10;
const FEEDBACK = { liked: "clicked", disliked: "disliked" };

/** React to an item of a slate, or take the same reaction back; it waits to be sent when this returns.

    That an item is known is told when the slate is finished: until then it can be taken back. */
export function react(item, reaction, shown) {
  const isCurrent = session().slate?.slate_id === shown;
  const before = isCurrent ? reactionTo(item.id) : null;
  const after = before === reaction ? null : reaction;
  if (isCurrent) change(changed(item.id, before, after));
  if (FEEDBACK[before]) put(feedback(shown, { retracted: [item.id] }));
  if (FEEDBACK[after]) put(feedback(shown, { [FEEDBACK[after]]: [item.id] }));
  if (after === "owned" && !isCurrent) put(knowing(item.id));
}

/** Ask for "more" or "less" of a category, or take the same wish back; it waits to be sent when this returns. */
export function wish(category, kind) {
  const { user, wishes } = session();
  const before = wishes.find((one) => one.category === category);
  if (before) put({ user, retracts: before.eventId, kind: "retract" });
  const others = wishes.filter((one) => one !== before);
  const after = before?.kind === kind ? null : put({ user, category, kind });
  change({ wishes: after ? [...others, { category, kind, eventId: after.event_id }] : others });
}

/** Whether the person has reacted to anything on the slate. */
export function isTouched() {
  const { liked, disliked, owned } = session();
  return liked.length + disliked.length + owned.length > 0;
}

/** Note that an item of a slate was seen; it is told along with whatever is sent next. */
export function noteSeen(id, shown) {
  const { slate, seen } = session();
  if (slate?.slate_id === shown && !seen.includes(id)) change({ seen: [...seen, id] });
}

/** Keep what was seen to be sent; returns the event, or null if there is nothing that the service has not been told. */
export function tellSeen() {
  const { slate, seen, told } = session();
  return slate && seen.length > told ? put(feedback(slate.slate_id)) : null;
}

/** The slate on the table; the first one is fetched. */
export function firstSlate() {
  return withLock("slate", async () => {
    if (session().slate) return session();
    return served(await slateFor(slateOptions()), 1);
  });
}

/** Finish this slate and get the next; if another tab has done so already, that one is taken. */
export function nextSlate(shown) {
  return withLock("slate", async () => {
    if (session().slate?.slate_id !== shown) return session();
    finish();
    await send();
    if (session().slate?.slate_id !== shown) return session();
    return served(await slateFor(slateOptions()), session().round + 1);
  });
}

/** Pick this slate again with other settings, as if it had never been shown; not once there is a reaction to it. */
export function pickAgain() {
  return withLock("slate", async () => {
    const { slate, round } = session();
    if (isTouched()) return session();
    return served(await slateFor({ ...slateOptions(), replaces: slate?.slate_id }), round);
  });
}

/** Remove everything that the service knows about this person, and become someone new. */
export async function forget() {
  clear();
  try {
    await ask("DELETE", `v1/users/${encodeURIComponent(session().user)}`);
  } catch (problem) {
    if (problem.status !== 404) throw problem;
  }
  return startOver();
}

/** What is asked for with every slate. */
export function slateOptions() {
  const { user, policy, diversity } = session();
  return { user, k: PICKS, ...(policy !== null && { policy }), ...(diversity !== null && { diversity }) };
}

function reactionTo(id) {
  return ["liked", "disliked", "owned"].find((reaction) => session()[reaction].includes(id)) ?? null;
}

/** The session's lists with another reaction to an item, which has been seen if there is a reaction to it. */
function changed(id, before, after) {
  const lists = session();
  return {
    ...(before && { [before]: lists[before].filter((one) => one !== id) }),
    ...(after && { [after]: [...lists[after], id] }),
    seen: lists.seen.includes(id) ? lists.seen : [...lists.seen, id],
  };
}

/** An event on a slate; on the one that is on the table it says what has been seen so far.

    What the person knows already is left out: that they did not like it on this slate means nothing. */
function feedback(slateId, content = {}) {
  const { slate, seen, owned } = session();
  const event = { slate_id: slateId, ...content, final: false };
  if (slate?.slate_id !== slateId) return event;
  change({ told: seen.length });
  return { ...event, seen: seen.filter((id) => !owned.includes(id)) };
}

function knowing(id) {
  return { user: session().user, item: id, kind: "owned" };
}

/** Say everything about the slate on the table; of a slate that nobody has looked at there is nothing to say.

    Whoever has to try again says the same under the same event ids. */
function finish() {
  const { slate, seen, owned } = session();
  owned.forEach((id, place) => put({ ...knowing(id), event_id: `${slate.slate_id}.${place}` }));
  if (seen.length) put({ ...feedback(slate.slate_id), final: true });
}

/** Ask for a slate; a request that was not answered, even before a reload, is repeated under its id, and the slate
    that was lost on its way arrives. */
function slateFor(options) {
  const wish = JSON.stringify(options);
  const { asked } = session();
  const requestId = asked?.wish === wish ? asked.requestId : newId();
  change({ asked: { wish, requestId } });
  return askPatiently("POST", "v1/slates", { ...options, request_id: requestId });
}

/** Put a slate on the table, unless the person has become someone new meanwhile. */
function served(slate, round) {
  const { user, known, owned } = session();
  if (slate.user !== user) return session();
  return change({ slate, round, known: [...known, ...owned], ...UNTOUCHED, asked: null });
}
