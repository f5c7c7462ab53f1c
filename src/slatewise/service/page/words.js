/* Numbers and names as people read them. */

const policies = new Map();

/** Take the names of policies from the service. */
export function namePolicies(all) {
  for (const one of all) policies.set(one.name, one);
}

/** A policy's name for people. */
export function policyName(name) {
  return policies.get(name)?.title || name;
}

/** What a policy does, in a sentence. */
export function policySummary(name) {
  return policies.get(name)?.summary ?? "";
}

/** Whether the probabilities of a policy are those of a like; others only rank. */
export function isCalibrated(name) {
  return policies.get(name)?.is_calibrated ?? false;
}

/** A share as "42 %". */
export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

/** How varied a slate is, and by what if not by categories alone. */
export function varietyWords({ variety, items }) {
  if (variety === null) return "unknown";
  return items.every((one) => one.categories.length) ? percent(variety) : `${percent(variety)} by item vectors`;
}

/** "1 like", "2 likes". */
export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** "Action, Drama and War". */
export function list(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** Seconds as "3 h 12 min". */
export function duration(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Bytes as "18.2 MB". */
export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(number, 1)) / 3), units.length - 1);
  return `${(number / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}
