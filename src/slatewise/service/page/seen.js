/* What has been looked at: a card counts as seen after a second on screen, in a tab that is in front. */

const LONG_ENOUGH = 1000;
const ENOUGH = 0.5;
const STEPS = Array.from({ length: 21 }, (_, step) => step / 20);

/** Watch cards and call `onSeen` with each one that has been seen; returns a function that stops it. */
export function watchCards(cards, onSeen) {
  const timers = new Map();
  const inView = new Set();
  const observer = new IntersectionObserver(look, { threshold: STEPS });

  function look(entries) {
    for (const entry of entries) inView[isInView(entry) ? "add" : "delete"](entry.target);
    time();
  }

  /** A second runs for each card in view; it starts over when the card or the tab comes back. */
  function time() {
    const isHidden = document.visibilityState !== "visible";
    for (const card of cards) {
      if (isHidden || !inView.has(card)) stop(card);
      else if (!timers.has(card)) timers.set(card, setTimeout(finish, LONG_ENOUGH, card));
    }
  }

  function stop(card) {
    clearTimeout(timers.get(card));
    timers.delete(card);
  }

  function finish(card) {
    observer.unobserve(card);
    inView.delete(card);
    onSeen(card);
  }

  cards.forEach((card) => observer.observe(card));
  document.addEventListener("visibilitychange", time);
  return () => {
    observer.disconnect();
    cards.forEach(stop);
    document.removeEventListener("visibilitychange", time);
  };
}

/** Half of the card is visible, or, where cards are larger than the window, it fills half of the window. */
function isInView({ intersectionRatio, intersectionRect, rootBounds }) {
  return intersectionRatio >= ENOUGH || intersectionRect.height >= ENOUGH * (rootBounds?.height ?? Infinity);
}
