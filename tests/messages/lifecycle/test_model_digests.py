"""Which changes of a model's files make it another model."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from messages.errors import ConfigError
from messages.hash_chain import HASH_CHAIN
from messages.lifecycle.model_digests import ModelDigests, read_digests, refuse_other_text, refuse_other_weights

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
