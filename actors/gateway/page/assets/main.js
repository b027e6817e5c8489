// The page: a feed of snapshots, and the parts that show them.

import { Chat } from "./chat.js";
import { byId, say } from "./dom.js";
import { follow } from "./feed.js";
import { lasting } from "./format.js";
import { forgetKey, hasKey } from "./key.js";
import { Plots } from "./plots.js";
import { Story } from "./story.js";
import { showRequests, showTenants } from "./tables.js";
import { showTiles } from "./tiles.js";
import { showTree } from "./tree.js";

const LOST_MS = 700; // shorter losses are not worth a sentence
const TONES = { serving: "good", degraded: "warn", starting: "warn", draining: "warn", drained: "warn", stopping: "bad" };

const plots = new Plots(byId("plots"));
const story = new Story(byId("events"));
const chat = new Chat();
let lostTimer = 0;

function onSnapshot(snapshot) {
  clearTimeout(lostTimer);
  lostTimer = 0;
  document.body.dataset.link = "live";
  document.body.dataset.at = snapshot.time_s;
  showHead(snapshot);
  showTiles(byId("tiles"), snapshot);
  plots.add(snapshot);
  showTree(byId("tree"), snapshot);
  say(byId("actors-count"), counted(snapshot));
  story.add(snapshot);
  showRequests(snapshot);
  showTenants(snapshot);
  chat.ready();
}

function onLost() {
  document.body.dataset.link = "lost";
  if (!lostTimer) lostTimer = setTimeout(() => notice("The gateway does not answer. Asking again…", "bad"), LOST_MS);
}

function showHead(snapshot) {
  say(byId("model"), snapshot.model || "…");
  say(byId("layout"), snapshot.layout);
  say(byId("uptime"), `up ${lasting(snapshot.uptime_s)}`);
  say(byId("answering"), snapshot.gateway);
  say(byId("state-text"), snapshot.state);
  byId("state").dataset.tone = TONES[snapshot.state] ?? "idle";
  say(byId("version"), `Tardigrade ${snapshot.version}`);
  document.title = snapshot.state === "serving" ? `Tardigrade · ${snapshot.model}` : `${snapshot.state} · Tardigrade`;
  byId("forget-key").hidden = !hasKey();
  notice(...said(snapshot));
}

/** What concerns everybody, in a sentence, and its tone. */
function said(snapshot) {
  const { supervisor, restart, state, actors } = snapshot;
  if (!supervisor.is_heard) {
    const since = lasting(supervisor.silent_s);
    return [`The supervisor has been silent for ${since}. Requests go on; what it says of the actors is as old.`, "warn"];
  }
  if (state === "draining") return ["The server drains: accepted requests are finished, new ones are refused.", "warn"];
  if (state === "drained") return ["The server is drained: nothing is left to finish, and new requests are refused.", "warn"];
  if (state === "stopping") return ["The server stops.", "bad"];
  const retired = actors.filter((one) => one.retired).map((one) => one.name);
  if (retired.length) return [`Not restarted for now: ${retired.join(", ")}. Open it below for the reason.`, "bad"];
  const cordoned = [...new Set(actors.filter((one) => one.cordon).map((one) => one.branch))];
  if (cordoned.length) return [`Cordoned, gets no new requests: ${cordoned.join(", ")}.`, "warn"];
  if (restart?.failure) return [`The rolling restart has stopped: ${restart.failure}`, "bad"];
  if (restart?.todo.length) return [`Rolling restart: ${restart.done.length} done, ${restart.todo.length} to go.`, "warn"];
  return ["", ""];
}

function notice(text, tone) {
  const element = byId("notice");
  say(element, text);
  element.dataset.tone = tone;
  element.hidden = !text;
}

function counted(snapshot) {
  const restarts = snapshot.actors.reduce((sum, one) => sum + one.restarts, 0);
  return `${snapshot.actors.length + 1}, ${restarts} ${restarts === 1 ? "restart" : "restarts"}`;
}

byId("forget-key").addEventListener("click", forgetKey);
follow(onSnapshot, onLost);
