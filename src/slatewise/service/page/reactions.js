/* What a person says about a card: that they like it, that it is not for them, or that they know it already.

   One reaction per card; the same button again takes it back. */

import { element, svg } from "./dom.js";

const HEART = "M12 20.3C5.5 15.7 3 12.5 3 8.9A4.8 4.8 0 0 1 12 6.6a4.8 4.8 0 0 1 9 2.3c0 3.6-2.5 6.8-9 11.4z";
const CROSSED = "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM5.6 5.6l12.8 12.8";
const EYE = "M2 12s3.6-6.5 10-6.5S22 12 22 12s-3.6 6.5-10 6.5S2 12 2 12zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6z";
const BUTTONS = {
  liked: { kind: "like", words: "Like", spoken: (name) => `Like ${name}`, hint: "I like this", icon: HEART },
  disliked: {
    kind: "dislike",
    words: "Not for me",
    spoken: (name) => `Not for me: ${name}`,
    hint: "I don’t like this",
    icon: CROSSED,
  },
  owned: {
    kind: "known",
    words: "Seen it",
    spoken: (name) => `Seen it: ${name}`,
    hint: "I know this already: learn from it, and don’t show it again",
    icon: EYE,
  },
};

/** The buttons of a card; `react` is called with the item and the reaction. */
export function reactionButtons(item, react) {
  const buttons = Object.entries(BUTTONS).map(([reaction, { kind, words, spoken, hint, icon }]) =>
    element(
      "button",
      {
        class: kind,
        type: "button",
        title: hint,
        "aria-label": spoken(item.title),
        "aria-pressed": "false",
        onclick: () => react(item, reaction),
      },
      svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: icon })),
      element("span", {}, words),
    ),
  );
  return element("div", { class: "reactions" }, buttons);
}

/** Show the reaction to each card; `session` has a list of item ids for each reaction. */
export function markReactions(container, session) {
  for (const [reaction, { kind }] of Object.entries(BUTTONS)) {
    const keys = new Set(session[reaction].map((id) => JSON.stringify(id)));
    for (const card of container.querySelectorAll(".card[data-key]")) {
      const pressed = keys.has(card.dataset.key);
      card.classList.toggle(reaction, pressed);
      card.querySelector(`.${kind}`).setAttribute("aria-pressed", String(pressed));
    }
  }
}
