"""Incremental detokenisation: whatever the cut into tokens, the same text, and never half a character."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from actors.gateway.text.detokenizer import ByteText, Detokenizer, StreamText, byte_table, special_ids, whole_texts
from actors.gateway.text.models.served_text import load_text_model

EMOJI = "👩‍👩‍👧 naïve Ελλάδα 日本語 🇩🇪 e\u0301 \U0001f9ec"
TEXTS = st.one_of(st.text(max_size=40), st.just(EMOJI), st.text(alphabet="é日👩‍a ", max_size=40))


def byte_level_tokenizer() -> Tokenizer:
    """256 byte tokens, a few longer ones, two special ones; GPT-2's alphabet."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["Ġthe", "Ã©", "ðŁĳ", "Ġ"]  # the third one is a part of a character
    vocabulary = {text: i for i, text in enumerate(dict.fromkeys([*alphabet, *words]))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    return tokenizer


def byte_fallback_tokenizer() -> Tokenizer:
    """SentencePiece's way: words with a mark for the space, and bytes for everything else."""
    words = ["▁the", "▁", "a", "é", "▁日", "ing"]
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {text: 256 + i for i, text in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


BYTE_LEVEL, BYTE_FALLBACK = byte_level_tokenizer(), byte_fallback_tokenizer()
TABLE = byte_table(BYTE_LEVEL)
assert TABLE is not None
ID_OF_BYTE = {raw[0]: i for i, raw in enumerate(TABLE) if len(raw) == 1}


def pieces_of(detokenizer: Detokenizer, ids: list[int]) -> list[str]:
    """What each id made certain, and what the end did."""
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


@given(TEXTS, st.lists(st.integers(0, 200), max_size=20))
def test_any_cut_of_a_texts_bytes_gives_the_text_and_only_whole_characters(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    borders = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    table = [raw[a:b] for a, b in pairwise(borders)]
    pieces = pieces_of(ByteText(table), list(range(len(table))))
    assert "".join(pieces) == text
    assert pieces[-1] == ""
    shown = ""
    for index, piece in enumerate(pieces[:-1]):
        shown += piece
        whole = raw[: borders[index + 1]].decode(errors="ignore")
        assert shown == whole, "everything that is whole is shown, and nothing else"


@given(st.lists(st.integers(0, len(TABLE) - 1), max_size=60), st.integers(0, 60))
def test_any_ids_give_the_librarys_text_and_go_on_after_a_replay(ids: list[int], cut: int) -> None:
    assert TABLE is not None
    pieces = pieces_of(ByteText(TABLE), ids)
    assert "".join(pieces) == b"".join(TABLE[i] for i in ids).decode(errors="replace")
    resumed = ByteText(TABLE)
    assert [resumed.push(token) for token in ids[:cut]] == pieces[:-1][:cut]
    assert [*(resumed.push(token) for token in ids[cut:]), resumed.flush()] == pieces[:-1][cut:] + pieces[-1:]


@given(st.lists(st.integers(0, len(TABLE) + 1), max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_many_ids_at_once_have_the_texts_that_they_have_one_by_one(ids: list[int], first: int, second: int) -> None:
    assert TABLE is not None
    one_by_one, at_once = ByteText(TABLE), ByteText(TABLE, whole_texts(TABLE))
    texts = [one_by_one.push(token) for token in ids]
    first, second = sorted((first, second))
    parts = (ids[:first], ids[first:second], ids[second:])
    assert [text for part in parts for text in at_once.push_all(part)] == texts
    assert at_once.flush() == one_by_one.flush()


def test_special_tokens_are_silent_and_added_ones_are_text() -> None:
    assert TABLE is not None
    silent, told = BYTE_LEVEL.token_to_id("<|end|>"), BYTE_LEVEL.token_to_id("<tool>")
    assert "".join(pieces_of(ByteText(TABLE), [silent or 0, told or 0, len(TABLE) + 5])) == "<tool>"
    assert byte_table(BYTE_FALLBACK) is None


@given(TEXTS)
def test_the_table_says_what_the_library_says(text: str) -> None:
    assert TABLE is not None
    ids = [ID_OF_BYTE[byte] for byte in text.encode()]
    assert "".join(pieces_of(ByteText(TABLE), ids)) == BYTE_LEVEL.decode(ids) == text


@given(st.lists(st.one_of(TEXTS, st.sampled_from(["▁the", "▁", "a", "é", "▁日", "ing"])), max_size=12), st.integers(0, 8))
def test_byte_fallback_gives_the_whole_text_without_half_characters(parts: list[str], n_context: int) -> None:
    vocabulary = BYTE_FALLBACK.get_vocab()
    ids: list[int] = []
    for part in parts:
        ids += [vocabulary[part]] if part in vocabulary else list(part.replace("\ufffd", "?").encode())
    context = [vocabulary["a"]] * n_context
    pieces = pieces_of(StreamText(BYTE_FALLBACK, context), ids)
    before, whole = BYTE_FALLBACK.decode(context), BYTE_FALLBACK.decode(context + ids)
    assert "".join(pieces) == whole[len(before) :]
    assert "\ufffd" not in "".join(pieces)
    assert pieces_of(StreamText(BYTE_FALLBACK, context), ids) == pieces, "a replay gives the same text at the same ids"


@given(st.lists(st.integers(0, 261), max_size=40))
def test_byte_fallback_survives_any_ids(ids: list[int]) -> None:
    """No sequence of ids raises, though the library itself does when the decoded text gets shorter; and a replay is equal."""
    assert pieces_of(StreamText(BYTE_FALLBACK, [257]), ids) == pieces_of(StreamText(BYTE_FALLBACK, [257]), ids)


@given(st.lists(st.sampled_from(["▁the", "a", "é", "</s>", "<s>"]), max_size=20), st.booleans())
def test_special_tokens_are_left_out_without_waiting_for_text(parts: list[str], skips_special: bool) -> None:
    tokenizer = byte_fallback_tokenizer()
    tokenizer.add_special_tokens(["</s>", "<s>"])
    ids = [tokenizer.token_to_id(part) or 0 for part in parts]
    special, context = special_ids(tokenizer), [tokenizer.token_to_id("a") or 0]
    stream = StreamText(tokenizer, context, skips_special=skips_special, special=special)
    pieces = [stream.push(token) for token in ids]
    assert not stream._pending, "no id is decoded again with the next one"
    assert pieces == pieces_of(StreamText(tokenizer, context, skips_special=skips_special), ids)[:-1]
    whole = tokenizer.decode(context + ids, skip_special_tokens=skips_special)
    assert "".join(pieces) == whole.removeprefix("a")


def test_a_folder_with_a_tokenizer_is_read(tmp_path: Path) -> None:
    BYTE_LEVEL.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 300, "eos_token_id": 260}))
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    template += "{% if add_generation_prompt %}<assistant>{% endif %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": template}))
    model = load_text_model(str(tmp_path))
    assert model.vocabulary == 300
    assert model.eos_tokens == sorted({260, BYTE_LEVEL.token_to_id("<|end|>") or 0})
    ids = model.encode(EMOJI)
    detokenizer = model.detokenizer(np.array([1], dtype="<i4"))
    assert "".join(pieces_of(detokenizer, ids)) == EMOJI
    chat = model.encode_chat([{"role": "user", "content": "é"}])
    assert "".join(pieces_of(model.detokenizer(np.array([1], dtype="<i4")), chat)) == "<user>é<assistant>"
    assert model.text_of(ids[0]) == ("\ufffd", EMOJI.encode()[:1])
    end = [*ids, BYTE_LEVEL.token_to_id("<|end|>") or 0, *ids]
    for skips_special, middle in ((True, ""), (False, "<|end|>")):
        detokenizer = model.detokenizer(np.array([1], dtype="<i4"), skips_special=skips_special)
        assert "".join(pieces_of(detokenizer, end)) == EMOJI + middle + EMOJI
