"""What the gateway reads in a model folder: end tokens, chat template, special tokens; and the errors of broken folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from actors.gateway.text.chat_template import TemplateError
from actors.gateway.text.detokenizer import NoText
from actors.gateway.text.models.hash_chain_text import HashChainText
from actors.gateway.text.models.ids_only import IdsOnly
from actors.gateway.text.models.served_text import load_text_model
from actors.gateway.text.models.text_model import NoTokenizer, TextModel
from messages.errors import ConfigError
from messages.hash_chain import HASH_CHAIN

USER = [{"role": "user", "content": "a b"}]
PROMPT = np.array([1], "<i4")


def words() -> Tokenizer:
    """Words divided by spaces: not a byte-level vocabulary."""
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "a", "b", "<s>", "</s>"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def load(folder: Path, writes: Tokenizer | None = None, **files: Any) -> TextModel:
    """Write a model folder and load it. `files`: the content of each file by its name without the ending .json."""
    if writes is not None:
        writes.save(str(folder / "tokenizer.json"))
    for name, content in {"config": {}, **files}.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return load_text_model(str(folder))


def test_end_tokens_are_gathered_from_all_files(tmp_path: Path) -> None:
    model = load(
        tmp_path,
        words(),
        config={"eos_token_id": 2},
        generation_config={"eos_token_id": [1, 2, True, "no id"]},
        tokenizer_config={"eos_token": {"content": "</s>"}},
    )
    assert model.eos_tokens == [1, 2, 4]


def test_the_vocabulary_is_the_configs_or_else_the_tokenizers(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert load(tmp_path / "one", words(), config={"vocab_size": 64}).vocabulary == 64
    assert load(tmp_path / "two", words()).vocabulary == 5


def test_other_vocabularies_are_decoded_as_a_stream(tmp_path: Path) -> None:
    model = load(tmp_path, words())
    ids = model.encode("a b a")
    assert ids == [1, 2, 1]
    detokenizer = model.detokenizer(PROMPT)
    assert "".join([detokenizer.push(token) for token in ids] + [detokenizer.flush()]) == " a b a"
    shown = model.detokenizer(PROMPT, skips_special=False)
    assert "".join([shown.push(token) for token in (1, 3, 2)] + [shown.flush()]) == " a <s> b"
    assert model.text_of(2) == ("b", b"b")
    assert model.fewest_tokens("a b a") == 0, "a vocabulary of words gives no bound"


@pytest.mark.parametrize("n_words", [10, 4000])
def test_long_texts_give_the_same_ids_as_short_ones(tmp_path: Path, n_words: int) -> None:
    assert load(tmp_path, words()).encode(" ".join(["a"] * n_words)) == [1] * n_words


@pytest.mark.parametrize(
    "template",
    [
        "{{ bos_token }} {{ messages[0].content }}",
        [
            {"name": "tools", "template": "{{ 1 }}"},
            {"name": "default", "template": "{{ bos_token }} {{ messages[0].content }}"},
        ],
        [{"name": "only", "template": "{{ bos_token }} {{ messages[0].content }}"}],
    ],
)
def test_the_template_stands_in_the_tokenizers_settings(tmp_path: Path, template: object) -> None:
    model = load(tmp_path, words(), tokenizer_config={"bos_token": "<s>", "chat_template": template})
    assert model.encode_chat(USER) == [3, 1, 2]


def test_a_file_of_its_own_is_the_template(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    model = load(tmp_path, words(), tokenizer_config={"chat_template": "{{ 'b' }}"})
    assert model.encode_chat(USER) == [1, 2]


@pytest.mark.parametrize("settings", [{}, {"chat_template": None}, {"chat_template": []}])
def test_without_a_template_there_is_no_chat(tmp_path: Path, settings: dict) -> None:
    with pytest.raises(TemplateError, match="no chat template"):
        load(tmp_path, words(), tokenizer_config=settings).encode_chat(USER)


def test_a_folder_without_a_tokenizer_takes_ids_only(tmp_path: Path) -> None:
    model = load(tmp_path, config={"vocab_size": 32, "eos_token_id": 7}, generation_config={"eos_token_id": [8, 9]})
    assert isinstance(model, IdsOnly)
    assert (model.vocabulary, model.eos_tokens) == (32, [8, 9])
    for encode in (lambda: model.encode("a"), lambda: model.encode_chat(USER)):
        with pytest.raises(NoTokenizer, match="send token ids"):
            encode()
    detokenizer = model.detokenizer(PROMPT)
    assert isinstance(detokenizer, NoText)
    assert (detokenizer.push(1), detokenizer.flush(), model.text_of(1)) == ("", "", ("", b""))
    assert (model.fewest_tokens("a"), model.takes_long(USER)) == (0, False)


def test_the_hash_chain_model_needs_no_folder() -> None:
    model = load_text_model(HASH_CHAIN)
    assert isinstance(model, HashChainText)
    assert model.encode("aé") == [97, 195, 169]
    assert model.encode_chat(USER) == list(b"user: a b\nassistant: ")
    assert (model.text_of(12), model.takes_long(USER), model.fewest_tokens("ab")) == (("12 ", b"12 "), False, 2)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config": "{"}, "config.json is not JSON"),
        ({"generation_config": "no"}, "generation_config.json is not JSON"),
        ({"tokenizer": "{}"}, "tokenizer.json cannot be read"),
        ({"tokenizer_config": {"chat_template": "{% for %}"}}, "chat template: "),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, files: dict, message: str) -> None:
    tokenizer = None if "tokenizer" in files else words()
    with pytest.raises(ConfigError, match=f"^model: .*{message}"):
        load(tmp_path, tokenizer, **files)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^model: expected a folder with config\.json, got "):
        load_text_model(str(tmp_path))


def test_files_that_hold_no_object_count_as_empty(tmp_path: Path) -> None:
    assert load(tmp_path, words(), config=[], tokenizer_config=[1]).vocabulary == 5
