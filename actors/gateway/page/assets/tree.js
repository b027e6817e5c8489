// The tree of actors: who lives, in which life, and of what the last one ended.

import { keep, make, say } from "./dom.js";
import { bytes, ending, lasting } from "./format.js";

const TONES = { ready: "good", draining: "warn", drained: "warn", stopping: "warn", dead: "bad", ending: "bad" };
const TITLES = { clients: "Clients", services: "Services" };
const FRESH_S = 8; // for so long a new life is marked

/** Show it: the supervisor, and below it the branches. */
export function showTree(parent, snapshot) {
  if (!parent.firstChild) parent.append(make("ul", "root"));
  const [root] = parent.children;
  keep(root, [supervisorOf(snapshot)], () => "supervisor", createBranch, (item, supervisor) => {
    updateActor(item.querySelector(":scope > details"), supervisor);
    keep(item.querySelector(":scope > ul"), branchesOf(snapshot.actors), (one) => one.name, createTitled, updateTitled);
  });
}

function supervisorOf({ supervisor, uptime_s }) {
  const facts = [["process", supervisor.pid || "not shown"], ["last heard", `${lasting(supervisor.silent_s)} ago`]];
  if (supervisor.parent_deaths) facts.push(["deaths of its parent", supervisor.parent_deaths]);
  return {
    name: "supervisor/0",
    state: supervisor.is_heard ? "ready" : "silent",
    tone: supervisor.is_heard ? "good" : "warn",
    brief: `server up ${lasting(uptime_s)}`,
    note: "starts, watches and restarts all others",
    pid: supervisor.pid,
    facts,
  };
}

function branchesOf(actors) {
  const names = [...new Set(actors.map((one) => one.branch))];
  const order = (name) => (name === "clients" ? 0 : name === "services" ? 2 : 1);
  names.sort((a, b) => order(a) - order(b) || a.localeCompare(b, "en", { numeric: true }));
  return names.map((name) => ({ name, actors: actors.filter((one) => one.branch === name).map(shownOf) }));
}

function shownOf(actor) {
  const ended = actor.last_exit ? ending(actor.last_exit, actor.last_exit_age_s) : "";
  const facts = [
    ["life", `${actor.life}; ${actor.restarts_left} deaths at once before the server gives up`],
    ["last heartbeat", `${lasting(actor.beat_age_s)} ago`],
    ["memory", bytes(actor.memory_bytes)],
    ["spare process", actor.has_spare ? "waits to be the next life" : "none"],
  ];
  if (actor.steps) facts.push(["steps", actor.steps.toLocaleString("en")]);
  if (actor.pid) facts.unshift(["process", actor.pid]);
  if (ended) facts.push(["last end", ended]);
  if (actor.retired) facts.push(["retired", actor.retired]);
  return {
    ...actor,
    facts,
    tone: actor.retired ? "bad" : actor.cordon ? "warn" : TONES[actor.state] ?? "warn",
    brief: actor.state === "ready" ? `life ${actor.life}, ${lasting(actor.uptime_s)}` : `life ${actor.life}`,
    note: actor.retired || actor.cordon || (actor.state === "ready" ? ended : actor.phase || ended),
    isFresh: actor.life > 1 && actor.uptime_s < FRESH_S,
  };
}

function createBranch() {
  return make("li", "branch", createActor(), make("ul"));
}

function createTitled() {
  return make("li", "branch", make("h3"), make("ul"));
}

function updateTitled(item, branch) {
  const [title, list] = item.children;
  say(title, TITLES[branch.name] ?? branch.name.replace("replica", "Replica"));
  keep(list, branch.actors, (one) => one.name, () => make("li", "", createActor()), (child, one) => {
    updateActor(child.firstElementChild, one);
  });
}

function createActor() {
  const summary = make("summary", "", make("span", "dot"), make("span", "name"), make("span", "state"));
  summary.append(make("span", "brief"), make("span", "size"), make("span", "note"));
  return make("details", "actor", summary, make("div", "inside", make("dl"), make("p", "advice")));
}

function updateActor(details, one) {
  details.dataset.tone = one.tone;
  details.dataset.fresh = one.isFresh ? "yes" : "no";
  const [, name, state, brief, size, note] = details.firstElementChild.children;
  say(name, one.name);
  say(state, one.state);
  say(brief, one.brief);
  say(size, one.memory_bytes ? bytes(one.memory_bytes) : "");
  say(note, one.note ?? "");
  const [facts, advice] = details.lastElementChild.children;
  keep(facts, one.facts, ([title]) => title, () => make("div", "", make("dt"), make("dd")), (row, [title, value]) => {
    say(row.firstChild, title);
    say(row.lastChild, String(value));
  });
  advise(advice, one.pid);
}

function advise(advice, pid) {
  advice.hidden = !pid;
  if (!advice.firstChild) advice.append("Kill it and watch: ", make("code"));
  say(advice.lastChild, `kill -9 ${pid}`);
}
