"""Large bodies are read in pieces, with turns of the loop between them, and refused before they become objects."""

from __future__ import annotations

import json
import random
import tracemalloc

import msgspec
import numpy as np
import pytest

from actors.gateway.bodies.fields.prompts import prompts_of
from actors.gateway.bodies.large_bodies import MOST_VALUES, SMALL_BYTES, BodyReader, StructureCount, pieces_of
from actors.gateway.bodies.schema import BatchBody, ChatBody, CompletionBody, GenerateBody, read_body
from actors.gateway.requests.refusals import Refusal
from tests.support.waiting import count_turns

_MIB = 1 << 20
_FIELDS = {GenerateBody: "tokens", BatchBody: "tokens", CompletionBody: "prompt", ChatBody: ""}


def _list_of(item: bytes, n: int) -> bytes:
    return b"[" + b",".join([item] * n) + b"]"


async def _read(raw: bytes, kind: type[msgspec.Struct], max_length: int = 2 * _MIB, max_batch: int = 4096) -> msgspec.Struct:
    return await BodyReader(max_length, max_batch).read(raw, kind, _FIELDS[kind])


async def _refused(raw: bytes, kind: type[msgspec.Struct], max_length: int = 8192, max_batch: int = 4096) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await _read(raw, kind, max_length, max_batch)
    return caught.value


@pytest.mark.parametrize("space", ["", " ", "\r\n\t "])
async def test_large_lists_of_ids_are_what_a_decoder_at_once_would_give(space: str) -> None:
    chance = random.Random(5)
    flat = [chance.randrange(-5, 200_000) for _ in range(60_000)]
    lists = [flat[at : at + chance.randrange(1, 2000)] for at in range(0, 60_000, 500)]
    for kind, value in ((GenerateBody, flat), (CompletionBody, flat), (CompletionBody, lists), (BatchBody, [[], *lists])):
        field = _FIELDS[kind]
        raw = json.dumps({"max_tokens": 7, field: value, "user": 'a "[[,' * 9}, separators=(f"{space},{space}", ":")).encode()
        assert len(raw) > SMALL_BYTES
        body = await _read(raw, kind)
        found = getattr(body, field)
        assert isinstance(found, np.ndarray) or isinstance(found[0], np.ndarray), "it was not read at once"
        assert getattr(body, "max_tokens") == 7  # noqa: B009 (every body has it, the base of all structs does not)
        if kind is CompletionBody:
            _, found = prompts_of(found)
            assert found is not None
            value = [value] if value is flat else value
        assert (found.tolist() if isinstance(found, np.ndarray) else [np.asarray(ids).tolist() for ids in found]) == value


@pytest.mark.parametrize(
    ("raw", "kind", "code", "words"),
    [
        (b'{"tokens":' + _list_of(b"[1]", 50_000) + b"}", BatchBody, "invalid", "1 to 4096 prompts, got 50000"),
        (b'{"prompt":' + _list_of(b"[]", 50_000) + b"}", CompletionBody, "invalid", "prompt: expected 1 to 4096 prompts"),
        (b'{"tokens":' + _list_of(b"1", 50_000) + b"}", GenerateBody, "too_long", "this model's context is 8192"),
        (b'{"tokens":[' + _list_of(b"1", 50_000) + b"]}", BatchBody, "too_long", "got 50000"),
        (b'{"tokens":[[1],' + _list_of(b"1.5", 5000) + b"," + _list_of(b"[1]", 40_000)[1:] + b"}", BatchBody, "invalid", "[1]"),
        (b'{"tokens":[[1],2,' + _list_of(b"[1]", 40_000)[1:] + b"}", BatchBody, "invalid", "tokens[1]: expected a list"),
        (b'{"tokens":' + _list_of(b"1", 50_000) + b"}", BatchBody, "invalid", "tokens[0]: expected a list"),
        (b'{"tokens":' + _list_of(b"[1]", 50_000) + b"}", GenerateBody, "invalid", "tokens[0]: expected an integer"),
        (b'{"messages":[{"content":' + _list_of(b"{}", 50_000) + b"}]}", ChatBody, "too_large", str(MOST_VALUES)),
        (b'{"prompt":"x","user":' + _list_of(b"{}", 50_000) + b"}", CompletionBody, "too_large", "values"),
        (b'{"prompt":"x",' + b",".join([b'"":1'] * 50_000) + b"}", CompletionBody, "too_large", "keys"),
        (b'{"tokens":' + _list_of(b"1", 50_000) + b',"n":"x"}', GenerateBody, "invalid", "n: expected an integer"),
        (b'{"tokens":' + _list_of(b"1", 50_000), GenerateBody, "invalid", "body: expected complete JSON"),
        (b'{"tokens":' + b"[" * 70_000, GenerateBody, "invalid", "body: expected"),
        (b'{"tokens":["' + b'","'.join([b"a"] * 50_000) + b'"]}', GenerateBody, "too_long", "got 50000"),
        (b'{"tokens":[' + b'["a"],' * 4000 + _list_of(b"1", 50_000) + b"]}", BatchBody, "invalid", "expected token ids"),
    ],
)  # fmt: skip
async def test_what_is_too_much_or_wrong_is_refused_by_name(raw: bytes, kind: type, code: str, words: str) -> None:
    refusal = await _refused(raw + b" " * SMALL_BYTES, kind)
    assert refusal.code == code
    assert words in refusal.detail


@pytest.mark.parametrize(
    ("start", "item", "end", "kind"),
    [
        (b'{"tokens":', b"[1]", b"}", BatchBody),
        (b'{"prompt":', b"[]", b"}", CompletionBody),
        (b'{"tokens":', b"123456", b"}", GenerateBody),
        (b'{"prompt":"x","metadata":', b"{}", b"}", CompletionBody),
        (b'{"messages":[{"role":"user","content":', b"{}", b"}]}", ChatBody),
    ],
)
async def test_a_body_that_is_refused_never_becomes_objects(start: bytes, item: bytes, end: bytes, kind: type) -> None:
    """Objects of Python are what takes the time: 30 to 400 ns and 8 to 100 bytes each."""
    raw = start + _list_of(item, 2 * _MIB // (len(item) + 1)) + end
    tracemalloc.start()
    try:
        await _refused(raw, kind)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 5 * len(raw), "some copies of the body, but no objects for its values"


async def test_other_tasks_run_while_a_large_body_is_read() -> None:
    raw = b'{"tokens":' + _list_of(b"12345", 400_000) + b"}"
    async with count_turns() as turns:
        body = await _read(raw, GenerateBody)
    assert isinstance(body, GenerateBody)
    assert turns.n > len(raw) / SMALL_BYTES


async def test_long_texts_are_not_taken_for_structure() -> None:
    text = ',[{":\\' * 100_000
    raw = json.dumps({"prompt": text}).encode()
    body = await _read(raw, CompletionBody)
    assert isinstance(body, CompletionBody)
    assert body.prompt == text


def test_the_structure_of_random_json_in_pieces_of_any_size() -> None:
    chance = random.Random(3)
    for _ in range(300):
        texts = ["".join(chance.choices('ab"\\,[{:é', k=chance.randrange(9))) for _ in range(20)]
        raw = json.dumps({text: [chance.choice(texts), [1, {}], 2] for text in texts}, ensure_ascii=False).encode()
        n_keys = len(set(texts))
        count = StructureCount()
        for piece in pieces_of(raw, chance.randrange(2, 50)):
            count.add(piece)
        # of each key: its list, the list and the object in it, three commas; and the body with the commas between the keys
        assert (count.n_values, count.n_keys) == (n_keys * 6 + n_keys, n_keys)


async def test_a_small_body_is_read_at_once() -> None:
    raw = b'{"tokens":[1,2]}'
    assert await _read(raw, GenerateBody) == read_body(raw, GenerateBody)
