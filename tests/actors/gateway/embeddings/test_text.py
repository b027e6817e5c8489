"""Texts and ids for the embedding model: counted, cut, refused by the name of their field."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from actors.gateway.embeddings.text import EmbeddingText, TextLimit
from actors.gateway.requests.refusals import Refusal
from tests.support.embedding.embedders import packaged_folder
from tests.support.embedding.tiny_decoders import END, WORDS, write_tokenizer

CLS, SEP, HELLO = 101, 102, 7592
THE, SERVER, QUERY = (WORDS.index(word) + 2 for word in ("the", "server", "query"))
WHOLE = TextLimit(16, cuts=False)


@pytest.fixture(scope="module")
def text() -> EmbeddingText:
    return EmbeddingText(packaged_folder(), 16)


def test_texts_have_the_special_tokens_of_the_model(text: EmbeddingText) -> None:
    assert [ids.tolist() for ids in text.encode(["hello", "Hello HELLO"], "input", WHOLE)] == [
        [CLS, HELLO, SEP],
        [CLS, HELLO, HELLO, SEP],
    ]


def test_a_text_that_is_cut_keeps_its_end(text: EmbeddingText) -> None:
    (ids,) = text.encode(["hello " * 30], "input", text.limit(-1))
    assert ids.tolist() == [CLS, *[HELLO] * 14, SEP]
    (ids,) = text.encode(["hello " * 30], "input", text.limit(3))
    assert ids.tolist() == [CLS, HELLO, SEP]


def test_a_decoder_reads_what_its_tokenizer_appends(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    text = EmbeddingText(tmp_path, 5)
    assert [ids.tolist() for ids in text.encode(["the server", "server"], "input", WHOLE, "query ")] == [
        [QUERY, THE, SERVER, END],
        [QUERY, SERVER, END],
    ]
    (ids,) = text.encode(["server " * 30], "input", text.limit(-1), "query ")
    assert ids.tolist() == [QUERY, SERVER, SERVER, SERVER, END]


def test_a_text_without_a_token_is_refused(tmp_path: Path) -> None:
    Tokenizer(models.BPE({"a": 0}, [])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(Refusal, match=r"input\[1\]: expected text with at least one token"):
        EmbeddingText(tmp_path, 5).encode(["a", "b"], "input", WHOLE)


def test_ids_are_taken_as_they_are_and_cut_at_their_end(text: EmbeddingText) -> None:
    assert [ids.tolist() for ids in text.check([[5, 6], [7]], "input", WHOLE)] == [[5, 6], [7]]
    (ids,) = text.check([list(range(30))], "input", text.limit(4))
    assert ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["hello", ""], r"input\[1\]: expected text, got an empty string"),
        (["hello " * 15], "input: expected at most 16 tokens .*, got at least 17; truncate_prompt_tokens"),
        (["\ud800"], "input: expected valid Unicode text"),
    ],
)
def test_texts_that_are_refused(text: EmbeddingText, texts: list[str], said: str) -> None:
    with pytest.raises(Refusal, match=said) as caught:
        text.encode(texts, "input", WHOLE)
    assert caught.value.field.startswith("input")


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([[1], []], r"input\[1\]: expected at least one token"),
        ([[30522]], "input: expected token ids from 0 to 30521, got 30522"),
        ([[-1]], "got -1"),
        ([[5] * 17], "input: expected at most 16 tokens"),
    ],
)
def test_ids_that_are_refused(text: EmbeddingText, ids: list[list[int]], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        text.check(ids, "input", WHOLE)


@pytest.mark.parametrize("wrong", [0, -2, 17])
def test_lengths_that_cannot_be_asked_for(text: EmbeddingText, wrong: int) -> None:
    with pytest.raises(Refusal, match="truncate_prompt_tokens: expected -1, or 1 to 16"):
        text.limit(wrong)
