/* What the page says about itself: the banner, short notes, and announcements for those who listen. */

import { connection, Problem, tryNow } from "./api.js";
import { byId, element, show } from "./dom.js";
import { waiting } from "./outbox.js";
import { count } from "./words.js";

const NOTE_TIME = 6000;
let fading = null;

/** Say something aloud without showing it. */
export function announce(words) {
  byId("announcer").textContent = words;
}

/** Show a short note for a while. */
export function note(words) {
  const place = byId("said");
  clearTimeout(fading);
  place.textContent = words;
  place.hidden = false;
  fading = setTimeout(() => (place.hidden = true), NOTE_TIME);
}

/** A problem in the place where something should be, with a way to try again. */
export function problemPanel(problem, retry) {
  return element(
    "div",
    { class: "problem", role: "alert" },
    element("h2", {}, problem.message),
    problem.detail && element("p", {}, problem.detail),
    problem.requestId && element("p", { class: "note" }, "Request ", element("code", {}, problem.requestId)),
    element("button", { class: "primary", type: "button", onclick: retry }, "Try again"),
  );
}

/** Keep the banner true to the connection. */
export function watchConnection(onBack) {
  let error = null;
  const draw = () => drawBanner(error);
  connection.addEventListener("lost", (event) => draw((error = event.detail)));
  connection.addEventListener("back", () => {
    draw((error = null));
    announce("Connected again");
    onBack();
  });
  addEventListener("offline", draw);
  addEventListener("online", draw);
  addEventListener("storage", draw);
  draw();
  return draw;
}

function drawBanner(error) {
  const banner = byId("banner");
  const away = error !== null || !navigator.onLine;
  banner.hidden = !away;
  if (!away) return show(banner);
  const kept = waiting();
  const words = [reasonOf(error), kept ? `${count(kept, "change")} kept, to be sent when it is back.` : "Trying again…"];
  const said = banner.querySelector("p");
  if (said) said.textContent = words.join(" ");
  else
    show(
      banner,
      element("p", {}, words.join(" ")),
      element("button", { class: "quiet", type: "button", onclick: tryNow }, "Try now"),
    );
}

function reasonOf(error) {
  if (!navigator.onLine) return "You are offline.";
  if (error instanceof Problem) return `${error.message}.`;
  return "The service does not respond.";
}
