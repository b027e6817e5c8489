"""Files of traces: written and read again, compressed or not; what is wrong is named by its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pages.traced_request import TracedRequest, runs_of
from ops.bench.cache.trace_file import hashed, read_trace, write_trace

_TRACE = [TracedRequest(0, 5, 3, [(0, 4)]), TracedRequest(7, 5, 2, [(0, 2), (4, 1)])]


@given(st.lists(st.integers(0, 50)))
def test_runs_stand_for_their_numbers(numbers: list[int]) -> None:
    assert TracedRequest(0, 0, 0, runs_of(numbers)).numbers == numbers


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_a_file_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    write_trace(tmp_path / name, _TRACE[::-1])
    assert read_trace(tmp_path / name) == _TRACE


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"at_ms": 1}', "line 2: .*took_ms"),
        (b'{"at_ms": 1, "took_ms": -2, "prompt_pages": 0, "pages": []}', r"line 2: .*>= 0.*took_ms"),
        (
            b'{"at_ms": 1, "took_ms": 2, "prompt_pages": 3, "pages": [[0, 2]]}',
            "line 2: prompt_pages: expected at most 2, got 3",
        ),
        (b"nonsense", "line 2"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, line: bytes, why: str) -> None:
    file = tmp_path / "trace.jsonl"
    write_trace(file, _TRACE[:1])
    file.write_bytes(file.read_bytes() + line + b"\n")
    with pytest.raises(ValueError, match=why):
        read_trace(file)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with pytest.raises(ValueError, match="expected at least one request, got none"):
        read_trace(tmp_path / "empty.jsonl")


def test_equal_numbers_after_equal_prefixes_have_equal_hashes() -> None:
    first, second = hashed(_TRACE)
    assert first.contents[:2] == second.contents[:2]
    assert [content[1] for content in first.contents[1:]] == [content[0] for content in first.contents[:-1]]
    assert second.contents[2] not in first.contents
