/* Every category has a color, the same everywhere on the page. */

const GOLDEN_ANGLE = 137.508;
const hues = new Map();

/** Give the catalog's categories their hues; neighbors in the list lie far apart. */
export function colorCategories(names) {
  hues.clear();
  names.forEach((name, place) => hues.set(name, Math.round((20 + place * GOLDEN_ANGLE) % 360)));
}

/** The hue of a category in degrees. */
export function hueOf(category) {
  return hues.get(category) ?? numberOf(category) % 360;
}

/** A number from text, the same on every machine (FNV-1a). */
export function numberOf(text) {
  let hash = 0x811c9dc5;
  for (const one of String(text)) {
    hash = Math.imul(hash ^ one.codePointAt(0), 0x01000193) >>> 0;
  }
  return hash;
}

/** Draws between 0 and 1 that only depend on the seed (mulberry32). */
export function draws(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
