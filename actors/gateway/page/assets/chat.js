// A conversation with the model. An answer goes on through the death of every process: over the same connection, or over a new
// one after the last event that has come.

import { Answer } from "./answer.js";
import { byId, make, say } from "./dom.js";
import { count } from "./format.js";
import { keyHeaders } from "./key.js";

/** The chat box. */
export class Chat {
  constructor() {
    this.log = byId("chat-log");
    this.text = byId("chat-text");
    this.messages = [];
    this.answer = null;
    this.hasModels = false;
    byId("chat-form").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    byId("chat-stop").addEventListener("click", () => this.stop());
    byId("chat-new").addEventListener("click", () => this.begin());
    this.text.addEventListener("keydown", (event) => this.onKey(event));
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") this.stop(); });
  }

  /** The server answers: ask once which models there are. */
  async ready() {
    if (this.hasModels) return;
    this.hasModels = true;
    try {
      const response = await fetch("v1/models", { headers: keyHeaders() });
      const models = (await response.json()).data.filter((one) => one.default_sampling);
      byId("chat-model").replaceChildren(...models.map((one) => new Option(one.id, one.id)));
    } catch {
      this.hasModels = false;
    }
  }

  onKey(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.send();
  }

  /** Forget the conversation. */
  begin() {
    this.stop();
    this.messages = [];
    this.log.replaceChildren(make("p", "faint", "A new conversation."));
    this.text.focus();
  }

  stop() {
    this.answer?.stop();
  }

  async send() {
    const content = this.text.value.trim();
    if (!content || this.answer) return;
    this.text.value = "";
    if (!this.messages.length) this.log.replaceChildren();
    this.messages.push({ role: "user", content });
    this.show("user", content);
    const { words, facts } = this.show("assistant", "");
    this.setBusy(true);
    const beganMs = performance.now();
    this.answer = new Answer((text, n, note) => {
      say(words, text);
      say(facts, factsOf(n, (performance.now() - beganMs) / 1e3, note));
      this.scroll();
    });
    const text = await this.answer.ask(byId("chat-model").value, this.messages);
    if (text) this.messages.push({ role: "assistant", content: text });
    else this.messages.pop();
    this.answer = null;
    this.setBusy(false);
  }

  show(role, content) {
    const words = make("div", "words", content), facts = make("div", "facts faint");
    const message = make("article", `message ${role}`, make("span", "hidden", role === "user" ? "You:" : "Model:"), words, facts);
    this.log.append(message);
    this.log.scrollTop = this.log.scrollHeight;
    return { words, facts };
  }

  scroll() {
    const left = this.log.scrollHeight - this.log.clientHeight - this.log.scrollTop;
    if (left < 80) this.log.scrollTop = this.log.scrollHeight; // not while somebody reads further up
  }

  setBusy(isBusy) {
    byId("chat-stop").hidden = !isBusy;
    byId("chat-send").disabled = isBusy;
    this.log.setAttribute("aria-busy", String(isBusy));
  }
}

function factsOf(n, seconds, note) {
  const pace = n > 1 ? `${n} tokens, ${count(n / seconds)}/s` : "";
  return [pace, note].filter(Boolean).join(" · ");
}
