// The API key of this tab. It is asked for where the server wants one, and goes to this server alone.

import { byId, say } from "./dom.js";

const NAME = "tardigrade-key";
let waiting = null;

/** The headers that show the key; none without one. */
export function keyHeaders() {
  const key = sessionStorage.getItem(NAME);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** True if this tab has a key. */
export function hasKey() {
  return sessionStorage.getItem(NAME) !== null;
}

/** Ask for a key; the promise is kept when somebody has given one. All who ask at a time wait for the same answer. */
export function askKey() {
  if (!waiting) waiting = new Promise((resolve) => open(resolve));
  return waiting;
}

/** Forget the key, and ask for another one. */
export function forgetKey() {
  sessionStorage.removeItem(NAME);
  location.reload();
}

function open(resolve) {
  const dialog = byId("key-dialog");
  if (hasKey()) say(byId("key-why"), "The server does not take this key any more, or never did.");
  byId("key-form").onsubmit = (event) => {
    event.preventDefault();
    sessionStorage.setItem(NAME, byId("key-text").value.trim());
    byId("key-text").value = "";
    dialog.close();
    waiting = null;
    resolve();
  };
  dialog.oncancel = (event) => event.preventDefault(); // without a key there is nothing to see behind it
  if (!dialog.open) dialog.showModal();
  byId("key-text").focus();
}
