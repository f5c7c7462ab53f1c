/* The service's HTTP interface: keys, problems, and patience while the service is away. */

import { askForKey, key } from "./key.js";

const PASSING = new Set([408, 429, 502, 503, 504, 507]);
const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;
const TIMEOUT = 20000;

/** Tells "lost" (detail: the error) when the service does not respond, and "back" when it does again. */
export const connection = new EventTarget();
let lost = false;

/** A response that says no (RFC 9457). */
export class Problem extends Error {
  constructor(status, { title, detail, request_id: requestId } = {}, wait = null) {
    super(title || `The service responded with status ${status}`);
    Object.assign(this, { status, detail: detail || "", requestId, wait });
  }

  /** Whether the same request may succeed later. */
  get passing() {
    return PASSING.has(this.status);
  }
}

/** No answer at all. */
export class Unreachable extends Error {
  get passing() {
    return true;
  }
}

/** Ask once. */
export async function ask(method, path, body) {
  const answer = await reach(method, path, body);
  if (answer.status === 401) {
    await askForKey(key() !== null);
    return ask(method, path, body);
  }
  const content = answer.status === 204 ? null : await read(answer);
  if (answer.ok) return content;
  throw new Problem(answer.status, content ?? {}, Number(answer.headers.get("retry-after")) * 1000 || null);
}

/** Ask until there is an answer; a request that is sent twice must be harmless. */
export async function askPatiently(method, path, body) {
  for (let wait = FIRST_WAIT; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
    try {
      const content = await ask(method, path, body);
      tell(null);
      return content;
    } catch (error) {
      if (!error.passing) {
        if (error instanceof Problem) tell(null);
        throw error;
      }
      tell(error);
      await pause(Math.max(wait, error.wait ?? 0));
    }
  }
}

/** Stop waiting and try again now. */
export function tryNow() {
  connection.dispatchEvent(new Event("impatient"));
}

function tell(error) {
  if (error) connection.dispatchEvent(new CustomEvent("lost", { detail: error }));
  else if (lost) connection.dispatchEvent(new Event("back"));
  lost = error !== null;
}

async function reach(method, path, body) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key() !== null) headers["x-api-key"] = key();
  const sent = body === undefined ? undefined : JSON.stringify(body);
  try {
    return await fetch(new URL(path, document.baseURI), {
      method,
      headers,
      body: sent,
      keepalive: sent !== undefined,
      cache: "no-store",
      signal: AbortSignal.timeout(TIMEOUT),
    });
  } catch (error) {
    throw new Unreachable("The service does not respond", { cause: error });
  }
}

async function read(answer) {
  try {
    return await answer.json();
  } catch (error) {
    if (!answer.ok) return null;
    throw new Unreachable("The response broke off", { cause: error });
  }
}

function pause(milliseconds) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      connection.removeEventListener("impatient", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    addEventListener("online", done);
    connection.addEventListener("impatient", done);
  });
}
