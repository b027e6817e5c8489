// Follows /v1/live: one snapshot a second, through the death of every process that answers.

import { eventsOf, pause } from "./events.js";
import { askKey, keyHeaders } from "./key.js";

const SILENT_MS = 1800; // a snapshot comes each second; after this time the connection counts as lost
const CONNECT_MS = 5000; // a gateway that starts answers late
const AGAIN_MS = 150;
const MOST_AGAIN_MS = 1000;
const HIDDEN_MS = 20000; // a tab that nobody sees for this time costs the server nothing

/** Call `onSnapshot` with each snapshot, and `onLost` whenever the connection is lost or refused. Never ends. */
export async function follow(onSnapshot, onLost) {
  let wait = AGAIN_MS;
  for (;;) {
    await seen();
    try {
      await one((snapshot) => { wait = AGAIN_MS; onSnapshot(snapshot); });
    } catch (error) {
      if (error.status === 401) await askKey();
    }
    onLost();
    await pause(wait);
    wait = Math.min(wait * 2, MOST_AGAIN_MS);
  }
}

async function one(onSnapshot) {
  const ending = new AbortController();
  let watch = setTimeout(() => ending.abort(), CONNECT_MS);
  const alive = () => { clearTimeout(watch); watch = setTimeout(() => ending.abort(), SILENT_MS); };
  const unwatch = whenHidden(() => ending.abort());
  try {
    const response = await fetch("v1/live?stream=true", { headers: keyHeaders(), signal: ending.signal, cache: "no-store" });
    if (!response.ok) throw Object.assign(new Error(response.statusText), { status: response.status });
    alive();
    for await (const event of eventsOf(response, alive)) if (event.data) onSnapshot(JSON.parse(event.data));
  } finally {
    clearTimeout(watch);
    unwatch();
    ending.abort();
  }
}

/** Call `act` when the tab has been hidden for a while. Returns what ends this. */
function whenHidden(act) {
  let timer = 0;
  const look = () => { clearTimeout(timer); if (document.hidden) timer = setTimeout(act, HIDDEN_MS); };
  document.addEventListener("visibilitychange", look);
  look();
  return () => { clearTimeout(timer); document.removeEventListener("visibilitychange", look); };
}

function seen() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}
