// Follows /v1/live: one snapshot a second, through the death of every process that answers.

import { eventsOf, pause } from "./events.js";
import { askKey, keyHeaders } from "./key.js";

const SILENT_MS = 1000; // an event or a comment comes at least twice in this time; after it the connection counts as lost
const CONNECT_MS = 1000; // longer each time, for links that need more than this
const BESIDE_MS = [0, 200, 400, 600]; // a connection that the browser has kept may lead to a dead gateway, whose next life answers late
const MOST_CONNECT_MS = 5000;
const AGAIN_MS = 150; // from one try to the next, so that the first after a connection that was good comes at once
const MOST_AGAIN_MS = 1000;
const HIDDEN_MS = 20000; // a tab that nobody sees for this time costs the server nothing

/** Call `onSnapshot` with each snapshot, and `onLost` whenever the connection is lost. Never ends. */
export async function follow(onSnapshot, onLost) {
  let tries = 0;
  for (;;) {
    await seen();
    const began = performance.now();
    const longer = 2 ** Math.min(tries, 8);
    tries += 1;
    try {
      await one(Math.min(CONNECT_MS * longer, MOST_CONNECT_MS), (snapshot) => { tries = 0; onSnapshot(snapshot); });
    } catch (error) {
      if (error.status === 401) { // the server answers, and says that it wants a key or another one
        await askKey();
        tries = 0;
        continue;
      }
    }
    onLost();
    await pause(Math.max(0, began + Math.min(AGAIN_MS * longer, MOST_AGAIN_MS) - performance.now()));
  }
}

async function one(connectMs, onSnapshot) {
  const ending = new AbortController();
  let watch = setTimeout(() => ending.abort(), connectMs);
  const alive = () => { clearTimeout(watch); watch = setTimeout(() => ending.abort(), SILENT_MS); };
  const unwatch = whenHidden(() => ending.abort());
  try {
    const response = await firstAnswer(ending.signal);
    if (!response.ok) throw Object.assign(new Error(response.statusText), { status: response.status });
    alive();
    for await (const event of eventsOf(response, alive)) if (event.data) onSnapshot(JSON.parse(event.data));
  } finally {
    clearTimeout(watch);
    unwatch();
    ending.abort();
  }
}

/** The first answer to a question that is asked several times, a little later each; the others are dropped. */
async function firstAnswer(signal) {
  const asked = BESIDE_MS.map((afterMs) => {
    const own = new AbortController();
    signal.addEventListener("abort", () => own.abort(), { once: true });
    return { own, answer: ask(afterMs, own.signal) };
  });
  const first = await Promise.any(asked.map(({ own, answer }) => answer.then((response) => ({ own, response }))));
  for (const { own } of asked) if (own !== first.own) own.abort();
  return first.response;
}

async function ask(afterMs, signal) {
  if (afterMs) await pause(afterMs, signal);
  signal.throwIfAborted();
  return fetch("v1/live?stream=true", { headers: keyHeaders(), signal, cache: "no-store" });
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
