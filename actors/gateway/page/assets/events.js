// Server-sent events over fetch, which can send a key in a header, as EventSource cannot.

/** Each event of a response as { id, data }, as soon as it has come. `onBytes` is called for every part that arrives. */
export async function* eventsOf(response, onBytes = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onBytes();
    text += value;
    const parts = text.split(/\r?\n\r?\n/);
    text = parts.pop();
    for (const part of parts) yield parsed(part);
  }
}

/** Wait, or less long if `signal` is aborted. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

function parsed(part) {
  const event = { id: "", data: "" };
  for (const line of part.split(/\r?\n/)) {
    if (line.startsWith("data:")) event.data += line.slice(5).trimStart();
    else if (line.startsWith("id:")) event.id = line.slice(3).trim();
  }
  return event;
}
