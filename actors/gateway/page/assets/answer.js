// One streamed answer of the model.

import { eventsOf, pause } from "./events.js";
import { askKey, keyHeaders } from "./key.js";

const PATIENCE_MS = 30000; // how long a lost answer is asked for again
const AGAIN_MS = 300;
const SILENT_MS = 25000; // the server sends a ping in less
const LOST = Symbol("the connection was lost");

/** Asks once. `onChange` is called with the text until now, its tokens, and a note. */
export class Answer {
  constructor(onChange) {
    this.onChange = onChange;
    this.text = "";
    this.count = 0;
    this.note = "";
    this.id = ""; // of the answer, once an event has come
    this.last = ""; // the id of the last event
    this.isOver = false;
    this.ending = new AbortController();
  }

  /** End it; what has come stays. */
  stop() {
    this.note = "stopped";
    this.isOver = true;
    this.ending.abort();
  }

  /** Ask the model, and read until the end. Returns the text. */
  async ask(model, messages) {
    const body = JSON.stringify({ model, messages, stream: true });
    let lostMs = 0;
    while (!this.isOver) {
      const before = this.last;
      const how = await this.read((signal) => (this.id ? this.again(signal) : this.first(body, signal)));
      if (this.isOver || how !== LOST) break;
      if (this.last !== before) lostMs = 0;
      lostMs = lostMs || performance.now();
      if (performance.now() - lostMs > PATIENCE_MS) { this.fail("the server does not answer"); break; }
      await pause(AGAIN_MS, this.ending.signal);
    }
    this.onChange(this.text, this.count, this.note);
    return this.text;
  }

  first(body, signal) {
    const headers = { "Content-Type": "application/json", ...keyHeaders() };
    return fetch("v1/chat/completions", { method: "POST", body, headers, signal });
  }

  again(signal) {
    this.note = "went on over a new connection";
    const headers = { "Last-Event-ID": this.last, ...keyHeaders() };
    return fetch(`v1/streams/${encodeURIComponent(this.id)}`, { headers, signal, cache: "no-store" });
  }

  /** Read one response. Returns LOST if it broke off. */
  async read(fetched) {
    let watch = 0;
    const mine = new AbortController();
    const alive = () => { clearTimeout(watch); watch = setTimeout(() => mine.abort(), SILENT_MS); };
    try {
      const response = await fetched(AbortSignal.any([this.ending.signal, mine.signal]));
      if (response.status === 401) { await askKey(); return LOST; }
      if (response.status === 204) { this.isOver = true; return null; }
      if (!response.ok) return await this.refused(response);
      alive();
      await this.take(response, alive);
      return this.isOver ? null : LOST;
    } catch {
      return LOST;
    } finally {
      clearTimeout(watch);
    }
  }

  async take(response, alive) {
    for await (const event of eventsOf(response, alive)) {
      if (event.data === "[DONE]") { this.isOver = true; return; }
      if (event.data) this.add(JSON.parse(event.data));
      if (event.id) this.last = event.id;
    }
  }

  add(chunk) {
    if (chunk.error) { this.fail(chunk.error.message); return; }
    this.id = chunk.id || this.id;
    const [choice] = chunk.choices ?? [];
    const text = choice?.delta?.content ?? "";
    this.text += text;
    if (text) this.count += 1;
    if (choice?.finish_reason === "length") this.note = "as long as it may be";
    this.onChange(this.text, this.count, this.note);
  }

  async refused(response) {
    const body = await response.json().catch(() => ({}));
    const isBusy = response.status === 503 || response.status === 429;
    const message = body.error?.message ?? `status ${response.status}`;
    if (isBusy && !this.text) { this.note = message; this.onChange(this.text, this.count, this.note); return LOST; }
    this.fail(message);
    return null;
  }

  fail(message) {
    this.note = message;
    this.isOver = true;
  }
}
