"""The log probabilities of an answer's tokens in OpenAI's format: of one token, of a span, or of all. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from actors.gateway.http.formats.prompt_logprobs import EchoedLogprobs, finite, likeliest_texts
from actors.gateway.requests.request import GrowingSequence
from actors.gateway.text.models.text_model import TextModel

SPAN_TOKENS = 64  # of a whole body between two turns of the event loop: with 20 log-probabilities each they take 3 ms
_encode = msgspec.json.Encoder().encode


def logprobs_json(
    sequence: GrowingSequence, first: int, stop: int, model: TextModel, *, is_chat: bool, offset: int
) -> dict[str, Any]:
    """The `logprobs` object of tokens first .. stop - 1, in the format of the chat API or of the completions API.

    offset: length of the text of the tokens before `first`, in characters.
    """
    some, wanted = sequence.logprobs.of(first, stop), sequence.spec.sampling.logprobs
    if not sequence.spec.has_answer:
        some, stop = some.part(0, 0), first
    ids = sequence.ids[first : first + len(some.chosen)]
    if is_chat:
        content = []
        for row, token in enumerate(ids):
            tops = [_chat_entry(model, i, p) for i, p in some.top_of(row, wanted)]
            content.append({**_chat_entry(model, token, float(some.chosen[row])), "top_logprobs": tops})
        return {"content": content, "refusal": None}
    tokens = [model.text_of(token)[0] for token in ids]
    offsets = []
    for text in sequence.texts[first:stop]:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": tokens,
        "token_logprobs": [finite(float(p)) for p in some.chosen],
        "top_logprobs": [
            likeliest_texts(model, some.top_of(row, wanted), token, float(some.chosen[row])) for row, token in enumerate(ids)
        ],
        "text_offset": offsets,
    }


def _chat_entry(model: TextModel, token: int, logprob: float) -> dict[str, Any]:
    text, raw = model.text_of(token)
    return {"token": text, "logprob": finite(logprob), "bytes": list(raw)}


def whole_logprobs(sequence: GrowingSequence, model: TextModel, *, is_chat: bool) -> Iterator[bytes]:
    """The JSON of `logprobs_json` for all tokens, in pieces. An empty piece follows each span of tokens; the lists come last,
    because each of them holds a value for every token."""
    lists: dict[str, list[bytes]] = {}
    offset = echo_length(sequence)
    if sequence.spec.echo:
        echoed = EchoedLogprobs(sequence, model)
        for first in range(0, echoed.n_tokens, SPAN_TOKENS):
            for name, values in echoed.part(first, first + SPAN_TOKENS).items():
                lists.setdefault(name, []).append(_encode(values)[1:-1])
            yield b""
    n_tokens = len(sequence.ids) if sequence.spec.has_answer else 0
    for first in range(0, n_tokens or int(not lists), SPAN_TOKENS):
        stop = first + SPAN_TOKENS
        some = logprobs_json(sequence, first, stop, model, is_chat=is_chat, offset=offset)
        offset += sum(map(len, sequence.texts[first:stop]))
        for name, values in some.items():
            if values is not None:
                lists.setdefault(name, []).append(_encode(values)[1:-1])
        yield b""
    yield b"{" + b",".join(b'"%b":[%b]' % (name.encode(), b",".join(spans)) for name, spans in lists.items())
    yield b',"refusal":null}' if is_chat else b"}"


def echo_length(sequence: GrowingSequence) -> int:
    """Characters of the prompt before the text of the tokens; 0 unless the answer repeats it with log probabilities."""
    spec = sequence.spec
    return len(spec.echo[sequence.index // spec.n]) if spec.echo and spec.sampling.logprobs >= 0 else 0
