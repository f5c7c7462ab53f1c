/* The API key, asked for when the service wants one and kept until the tab is closed. */

import { byId } from "./dom.js";
import { kept } from "./storage.js";

const NAME = "slatewise.key";
const tab = kept(() => sessionStorage);
let asking = null;

/** The key, or null. */
export function key() {
  return tab.get(NAME);
}

/** Ask the person for another key than the one that was refused (null: there was none), unless it is there by now.
    Several callers share one dialog. */
export async function askForKey(refused) {
  if (key() !== refused) return;
  asking ??= open(refused !== null).finally(() => (asking = null));
  await asking;
}

function open(refused) {
  const dialog = byId("key-dialog");
  const field = byId("key-field");
  byId("key-refused").hidden = !refused;
  field.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    byId("key-form").onsubmit = (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      tab.set(NAME, field.value.trim());
      dialog.close();
      resolve();
    };
    dialog.oncancel = (event) => event.preventDefault();
  });
}
