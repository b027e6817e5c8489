// The figures of now, large.

import { keep, make, say } from "./dom.js";
import { bytes, count, milliseconds, share } from "./format.js";

/** Show them. */
export function showTiles(parent, snapshot) {
  keep(parent, tiles(snapshot), (one) => one.name, create, update);
}

function tiles({ pace, sequences, caches, devices, actors, n_requests }) {
  const prefix = caches.prefix;
  const reused = prefix?.prompt_tokens ? prefix.cached_tokens / prefix.prompt_tokens : null;
  const memory = actors.reduce((sum, one) => sum + one.memory_bytes, 0);
  const all = [
    { name: "Tokens per second", value: count(pace.tokens_per_s), more: `${count(pace.requests_per_s)} requests/s` },
    { name: "First token", value: milliseconds(pace.first_token_p50_ms), more: `p99 ${milliseconds(pace.first_token_p99_ms)}` },
    { name: "Running", value: count(sequences.running), more: `${count(n_requests)} ${n_requests === 1 ? "request" : "requests"} open` },
    { name: "Waiting", value: count(sequences.waiting), more: sequences.waiting ? "sequences in queues" : "no queue" },
    { name: "Prompt reuse", value: share(reused), more: prefix ? `${share(full(prefix))} of pages in use` : "no pages yet" },
  ];
  all.push(...moreCaches(caches));
  if (devices.length) return [...all, gpus(devices)];
  return [...all, { name: "Memory", value: bytes(memory), more: `${actors.length} processes` }];
}

/** Tiles of the caches that are on, beside that of prompts. */
function moreCaches({ host, disk, exchange, answers, shared, similar }) {
  const pages = [["host", host?.loaded], ["disk", disk?.read], ["moved", exchange?.moved]].filter(([, n]) => n != null);
  const found = [answers && `${count(answers.hits)} of ${count(answers.hits + answers.misses)} requests`, similar && `similar ${share(hitShare(similar))}`, shared && `shared ${count(shared.hits)}`].filter(Boolean);
  const tiles = [];
  if (pages.length) {
    const all = pages.reduce((sum, [, n]) => sum + n, 0);
    tiles.push({ name: "Pages brought back", value: count(all), more: pages.map(([name, n]) => `${name} ${count(n)}`).join(", ") });
  }
  if (found.length) tiles.push({ name: "Answers reused", value: share(answers ? hitShare(answers) : null), more: found.join(", ") });
  return tiles;
}

function hitShare({ hits, misses }) {
  return hits + misses ? hits / (hits + misses) : null;
}

/** The share of pages that hold something. */
export function full(prefix) {
  return prefix.pages ? (prefix.held + prefix.cached) / prefix.pages : null;
}

/** The mean of a field over the GPUs that have it; null without any. */
export function mean(devices, field) {
  const known = devices.map((one) => one[field]).filter((value) => value != null);
  return known.length ? known.reduce((a, b) => a + b) / known.length : null;
}

function gpus(devices) {
  const used = devices.reduce((sum, one) => sum + (one.used_bytes ?? 0), 0);
  const name = devices.length > 1 ? `${devices.length} GPUs busy` : "GPU busy";
  return { name, value: share(mean(devices, "busy")), more: used ? `${bytes(used)} in use` : "" };
}

function create() {
  const tile = make("div", "tile");
  tile.append(make("dt"), make("dd", "value"), make("dd", "more faint"));
  return tile;
}

function update(tile, one) {
  const [name, value, more] = tile.children;
  say(name, one.name);
  say(value, one.value);
  say(more, one.more);
}
