/* A client of slatewise for browsers: slates, what was seen, events, and a queue that survives being offline.

   Everything that is recorded carries an id from the first attempt on, so that a retry counts once. The module needs
   storage.js and seen.js next to it, and nothing else; types are in client.d.ts. */

import { browser, newId, withLock } from "./storage.js";

export { watchCards } from "./seen.js";

const PASSING = new Set([408, 429, 502, 503, 504, 507]);
const FINAL = new Set([400, 404, 409, 413, 422]);
const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;
const TIMEOUT = 20000;
const PREFIX = "slatewise.event.";

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

/** No response at all. */
export class Unreachable extends Error {
  get passing() {
    return true;
  }
}

/** Calls the service; tells "lost" (detail: the error) when it does not respond, and "back" when it does again. */
export class Client extends EventTarget {
  #lost = false;
  #sequence = 0;

  /** url: of the service; key: a function that returns the API key or null; onUnauthorized: a function that is
      given the key that was refused (or null), and gets another one or throws; storage: what keeps events (get, set,
      remove, names); timeout: of a request, in milliseconds. */
  constructor({ url, key = () => null, onUnauthorized = null, storage = browser, timeout = TIMEOUT } = {}) {
    super();
    Object.assign(this, { url, key, onUnauthorized, storage, timeout });
  }

  /** Choose a slate and record it; asked again until there is a response, which is always the same slate. */
  slate(user, options = {}) {
    return this.askPatiently("POST", "v1/slates", { user, request_id: newId(), ...options });
  }

  /** Keep feedback on a slate and send it, now or when the service is back; returns what was refused. */
  feedback(slateId, reaction = {}) {
    this.put({ slate_id: slateId, ...reaction });
    return this.send();
  }

  /** Keep an event about an item and send it, now or when the service is back; returns what was refused. */
  event(user, item, kind, options = {}) {
    this.put({ user, item, kind, ...options });
    return this.send();
  }

  /** Keep a wish for more or less of a category (kind: "more" or "less") and send it; `put` returns its id for an undo. */
  wish(user, category, kind, options = {}) {
    this.put({ user, category, kind, ...options });
    return this.send();
  }

  /** Take an event back by its id, as if it had never been sent; returns what was refused. */
  retract(user, eventId) {
    this.put({ user, retracts: eventId, kind: "retract" });
    return this.send();
  }

  /** Ask once. */
  async ask(method, path, body) {
    const key = this.key();
    const response = await this.#reach(method, path, body);
    if (response.status === 401 && this.onUnauthorized) {
      await this.onUnauthorized(key);
      return this.ask(method, path, body);
    }
    const content = response.status === 204 ? null : await read(response);
    if (response.ok) return content;
    throw new Problem(response.status, content ?? {}, Number(response.headers.get("retry-after")) * 1000 || null);
  }

  /** Ask until there is a response; a request that is sent twice must be harmless. */
  async askPatiently(method, path, body) {
    for (let wait = FIRST_WAIT; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
      try {
        const content = await this.ask(method, path, body);
        this.#tell(null);
        return content;
      } catch (error) {
        if (!error.passing) {
          if (error instanceof Problem) this.#tell(null);
          throw error;
        }
        this.#tell(error);
        await this.#pause(Math.max(wait, error.wait ?? 0));
      }
    }
  }

  /** Stop waiting and try again now. */
  tryNow() {
    this.dispatchEvent(new Event("impatient"));
  }

  /** Keep an event to be sent, on a slate or about an item on its own; returns it with its id.

      Each event has a name of its own in the storage, so tabs cannot overwrite each other's. */
  put(event) {
    const place = `${Date.now().toString(36)}.${String(this.#sequence++).padStart(6, "0")}.${newId().slice(0, 8)}`;
    const whole = { event_id: newId(), ...event };
    this.storage.set(PREFIX + place, JSON.stringify(whole));
    return whole;
  }

  /** How many events wait. */
  waiting() {
    return this.#names().length;
  }

  /** Drop what waits, for someone who is to be forgotten. */
  clear() {
    this.#names().forEach(this.storage.remove);
  }

  /** Send everything that waits, oldest first and one after the other, so that events arrive in the order in which they
      were made; returns the problems of what the service refused, with their slate ids. */
  async send() {
    const refused = [];
    await withLock("outbox", async () => {
      for (let [name] = this.#names(); name !== undefined; [name] = this.#names()) {
        const text = this.storage.get(name);
        const problem = await this.#deliver(text);
        if (problem) refused.push({ problem, slateId: parsed(text)?.slate_id });
        if (problem && !isFinal(problem)) break;
        this.storage.remove(name);
      }
    });
    return refused;
  }

  /** Send an event from a page that goes away: nothing is waited for, and the next visit sends it again. */
  sendAtOnce(event) {
    this.ask("POST", pathOf(event), event).catch(() => {});
  }

  async #deliver(text) {
    try {
      const event = JSON.parse(text);
      await this.askPatiently("POST", pathOf(event), event);
      return null;
    } catch (problem) {
      return problem;
    }
  }

  #names() {
    return this.storage
      .names()
      .filter((name) => name.startsWith(PREFIX))
      .sort();
  }

  async #reach(method, path, body) {
    const headers = { accept: "application/json" };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (this.key() !== null) headers["x-api-key"] = this.key();
    const sent = body === undefined ? undefined : JSON.stringify(body);
    try {
      return await fetch(new URL(path, this.url ?? document.baseURI), {
        method,
        headers,
        body: sent,
        keepalive: sent !== undefined,
        cache: "no-store",
        signal: AbortSignal.timeout(this.timeout),
      });
    } catch (error) {
      throw new Unreachable("The service does not respond", { cause: error });
    }
  }

  #tell(error) {
    if (error) this.dispatchEvent(new CustomEvent("lost", { detail: error }));
    else if (this.#lost) this.dispatchEvent(new Event("back"));
    this.#lost = error !== null;
  }

  #pause(milliseconds) {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        removeEventListener("online", done);
        this.removeEventListener("impatient", done);
        resolve();
      };
      const timer = setTimeout(done, milliseconds);
      addEventListener("online", done);
      this.addEventListener("impatient", done);
    });
  }
}

async function read(response) {
  try {
    return await response.json();
  } catch (error) {
    if (!response.ok) return null;
    throw new Unreachable("The response broke off", { cause: error });
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
  return problem instanceof SyntaxError || FINAL.has(problem.status);
}
