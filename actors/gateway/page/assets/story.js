// What happened to the actors, from one snapshot to the next.

import { make } from "./dom.js";
import { clock, lasting, wasTold } from "./format.js";

const MOST = 60;

/** The list of what happened, the newest first. */
export class Story {
  constructor(list) {
    this.list = list;
    this.before = null;
    this.isEmpty = true;
  }

  /** Tell what is other than in the snapshot before. */
  add(snapshot) {
    const happened = this.before ? changes(this.before, snapshot) : [];
    this.before = snapshot;
    for (const [tone, text] of happened) this.tell(tone, text, new Date(snapshot.time_s * 1000));
  }

  tell(tone, text, date) {
    if (this.isEmpty) this.list.replaceChildren();
    this.isEmpty = false;
    const item = make("li", "", make("time", "faint", clock(date)), make("span", "", text));
    item.dataset.tone = tone;
    this.list.prepend(item);
    while (this.list.children.length > MOST) this.list.lastChild.remove();
  }
}

/** What is other, as pairs of a tone and a sentence. */
function changes(before, now) {
  const found = [];
  if (before.gateway !== now.gateway) found.push(["idle", `this page is served by ${now.gateway} now`]);
  if (before.state !== now.state) found.push(["idle", `the server is ${now.state}`]);
  found.push(...ofSupervisor(before.supervisor, now.supervisor));
  const known = new Map(before.actors.map((one) => [one.name, one]));
  for (const actor of now.actors) {
    const earlier = known.get(actor.name);
    if (earlier) found.push(...ofActor(earlier, actor));
  }
  return found;
}

function ofSupervisor(before, now) {
  if (before.is_heard && !now.is_heard) return [["bad", "the supervisor is silent"]];
  if (before.pid && now.pid && before.pid !== now.pid) return [["good", "a new supervisor has adopted all actors"]];
  return !before.is_heard && now.is_heard ? [["good", "the supervisor answers again"]] : [];
}

function ofActor(before, now) {
  const found = [];
  if (now.life > before.life) {
    const cause = now.last_exit || "its last life is over";
    found.push([wasTold(now.last_exit) ? "idle" : "bad", `${now.name}: ${cause}`]);
  }
  if (now.state === "ready" && (before.state !== "ready" || now.life > before.life)) {
    const gone = now.last_exit_age_s - now.uptime_s; // from the proof of its death until the next process
    const after = gone > 0 && gone < 3600 ? `, started ${lasting(gone)} after its end` : "";
    found.push(["good", `${now.name} is ready: life ${now.life}${after}`]);
  } else if (now.state !== before.state && now.state !== "ready") {
    found.push(["idle", `${now.name} is ${now.state}`]);
  }
  if (now.cordon && !before.cordon) found.push(["idle", `${now.name}: ${now.cordon}`]);
  return found;
}
