/* The page's connection to the service: the client of client.js, which asks the person for a key where one is needed. */

import { Client } from "./client.js";
import { askForKey, key } from "./key.js";

export { Problem } from "./client.js";

/** Tells "lost" (detail: the error) when the service does not respond, and "back" when it does again. */
export const connection = new Client({ key, onUnauthorized: askForKey });

/** Ask once. */
export const ask = (method, path, body) => connection.ask(method, path, body);

/** Ask until there is a response; a request that is sent twice must be harmless. */
export const askPatiently = (method, path, body) => connection.askPatiently(method, path, body);

/** Stop waiting and try again now. */
export const tryNow = () => connection.tryNow();
