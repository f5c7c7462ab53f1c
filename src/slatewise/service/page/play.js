/* What a person can do: like, take back, ask for more, ask for other picks, start over, be forgotten. */

import { ask, askPatiently } from "./api.js";
import { withLock } from "./storage.js";
import { clear, put, send } from "./outbox.js";
import { change, session, startOver } from "./session.js";

export const PICKS = 10;

/** Like an item of a slate, or take the like back; it waits to be sent when this returns. */
export function toggle(item, shown) {
  const { slate, liked } = session();
  const isCurrent = slate?.slate_id === shown;
  const isLiked = isCurrent && liked.includes(item.id);
  const answer = isLiked ? { clicked: [], retracted: [item.id] } : { clicked: [item.id], retracted: [] };
  put({ slate_id: shown, ...answer, final: false });
  if (isCurrent) change({ liked: isLiked ? liked.filter((id) => id !== item.id) : [...liked, item.id] });
}

/** The slate on the table; the first one is fetched. */
export function firstSlate() {
  return withLock("slate", async () => {
    if (session().slate) return session();
    return served(await askPatiently("POST", "v1/slates", slateOptions()), 1);
  });
}

/** Finish this slate and get the next; if another tab has done so already, that one is taken.

    A slate that is lost on its way to us is closed by the service, unanswered, when we ask again. */
export function nextSlate(shown) {
  return withLock("slate", async () => {
    if (session().slate?.slate_id !== shown) return session();
    put({ slate_id: shown, clicked: [], retracted: [], final: true });
    await send();
    if (session().slate?.slate_id !== shown) return session();
    return served(await askPatiently("POST", "v1/slates", slateOptions()), session().round + 1);
  });
}

/** Pick this slate again with other settings, as if it had never been shown; not once something on it is liked. */
export function pickAgain() {
  return withLock("slate", async () => {
    const { slate, liked, round } = session();
    if (liked.length) return session();
    return served(await askPatiently("POST", "v1/slates", { ...slateOptions(), replaces: slate?.slate_id }), round);
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

/** Put a slate on the table, unless the person has become someone new meanwhile. */
function served(slate, round) {
  return slate.user === session().user ? change({ slate, liked: [], round }) : session();
}
