"""Which changes of a model's files make it another model."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from messages.errors import ConfigError
from messages.hash_chain import HASH_CHAIN
from messages.lifecycle.model_digests import (
    ModelDigests,
    read_digests,
    read_text_digest,
    refuse_other_text,
    refuse_other_weights,
)

WEIGHTS, TEXT, OTHER = "model.safetensors", "tokenizer.json", "README.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "model"
    found.mkdir()
    for name in (WEIGHTS, TEXT, OTHER, "config.json"):
        (found / name).write_bytes(name.encode() * 4000)
    return found


def test_a_copy_is_the_same_model(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    os.utime(copy / WEIGHTS, (1, 1))
    (copy / OTHER).write_text("other words")
    assert read_digests(str(copy)) == read_digests(str(folder))
    refuse_other_weights(str(copy), read_digests(str(folder)))


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_other_weights_are_refused(folder: Path, name: str) -> None:
    before = read_digests(str(folder))
    (folder / name).write_bytes(b"other" * 4000)
    with pytest.raises(ConfigError, match="expected the weights with which this server was started"):
        refuse_other_weights(str(folder), before)
    refuse_other_text(str(folder), read_digests(str(folder)).text, before)


def test_another_tokenizer_is_refused_by_those_that_have_text(folder: Path) -> None:
    before = read_digests(str(folder))
    (folder / TEXT).write_bytes(b"other")
    refuse_other_weights(str(folder), before)
    with pytest.raises(ConfigError, match="expected the tokenizer with which this server was started"):
        refuse_other_text(str(folder), read_digests(str(folder)).text, before)


def test_what_is_not_known_is_not_compared(folder: Path) -> None:
    assert read_digests(HASH_CHAIN) == ModelDigests()
    refuse_other_weights(str(folder), ModelDigests())
    refuse_other_text(str(folder), "other", ModelDigests())


def test_weights_that_are_not_loaded_do_not_count(folder: Path) -> None:
    before = read_digests(str(folder))
    (folder / "consolidated.safetensors").write_bytes(b"of another format")
    refuse_other_weights(str(folder), before)
    assert read_digests(str(folder)) == before


def test_of_a_model_in_several_files_those_of_its_index_count(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')
    before = read_digests(str(folder))
    (folder / "model-2.safetensors").write_bytes(b"added")
    refuse_other_weights(str(folder), before)
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(ConfigError, match="the files have changed"):
        refuse_other_weights(str(folder), before)
    (folder / "model-1.safetensors").write_bytes(b"replaced")
    with pytest.raises(ConfigError, match="the files have changed"):
        refuse_other_weights(str(folder), before)


def test_files_that_decide_more_of_a_model_count_where_they_are_asked_for(folder: Path) -> None:
    also = ("1_Pooling/config.json",)
    before = read_digests(str(folder), also)
    assert before == read_digests(str(folder)), "there is none yet"
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    refuse_other_weights(str(folder), before)
    with pytest.raises(ConfigError, match="the files have changed"):
        refuse_other_weights(str(folder), before, also)


def test_the_digest_of_the_tokenizer_is_read_alone(folder: Path) -> None:
    assert read_text_digest(str(folder)) == read_digests(str(folder)).text
