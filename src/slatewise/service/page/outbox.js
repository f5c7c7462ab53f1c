/* Feedback on its way: kept until the service has acknowledged it, and sent again under the same event id. */

import { connection } from "./api.js";

/** Keep an event to be sent, on a slate or about an item on its own; returns it with its id. */
export const put = (event) => connection.put(event);

/** How many events wait. */
export const waiting = () => connection.waiting();

/** Drop what waits for someone who is to be forgotten. */
export const clear = () => connection.clear();

/** Send everything that waits, oldest first; returns the problems of what the service refused, with their slate ids. */
export const send = () => connection.send();

/** Send an event from a page that goes away: nothing is waited for, and the next visit sends it again. */
export const sendAtOnce = (event) => connection.sendAtOnce(event);
