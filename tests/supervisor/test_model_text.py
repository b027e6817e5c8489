"""What a model takes, by the files of its folder, and a tokenizer that is not there as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from messages.errors import ConfigError
from supervisor.model_text import check_tokenizer

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3522656\n"
BROKEN = [
    (b'{"version": "1.0", "mod', "got Input data was truncated; was the file copied or loaded as a whole"),
    (b"<!doctype html>", "got JSON is malformed"),
    (b"[]", "got Expected `object`, got `array`"),
    (b"", "got Input data was truncated"),
    (POINTER, "got a pointer of Git LFS; `git lfs pull` loads the file"),
]


@pytest.mark.parametrize(("content", "said"), BROKEN)
def test_a_tokenizer_that_is_not_whole_is_refused_before_anything_starts(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        check_tokenizer(path)
    assert str(refused.value).startswith(f"model: {path}: expected a JSON object, {said}")


@pytest.mark.parametrize(("content", "got"), [("{}", "an empty object"), ('{"a": 1, "b": {"model": 2}}', "a, b")])
def test_a_file_of_something_else_is_refused(content: str, got: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ConfigError) as refused:
        check_tokenizer(path)
    assert str(refused.value) == f"model: {path}: expected the file of a tokenizer, with a key model, got {got}"


def test_a_whole_tokenizer_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes('{"model": {"vocab": {"ü": 0}}}'.encode())
    check_tokenizer(path)
