"""Reasoning is told from content by its marks, wherever the text is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.text.channels import Splitting
from actors.gateway.text.pieces import Channel, TextPiece
from actors.gateway.text.reasoning_text import ReasoningMarks, ReasoningSplitter

MARKS = ReasoningMarks("<think>", "</think>")
OPEN = ReasoningMarks("<think>", "</think>", is_open=True)


def split(marks: ReasoningMarks, parts: list[str]) -> dict[Channel, str]:
    splitter = Splitting(reasoning=marks).splitter()
    pieces = [piece for part in parts for piece in splitter.push(part)] + splitter.flush()
    assert all(isinstance(piece, TextPiece) and piece.text for piece in pieces)
    texts = {Channel.REASONING: "", Channel.CONTENT: ""}
    for channel, text in pieces:
        texts[channel] += text
    return texts


@pytest.mark.parametrize(
    ("marks", "text", "reasoning", "content"),
    [
        (MARKS, "<think>\nWhy not.\n</think>\n\nYes.", "Why not.", "Yes."),
        (MARKS, "\n <think>a</think>b", "a", "b"),
        (MARKS, "<think>\n\n</think>\n\nYes.\n", "", "Yes.\n"),
        (MARKS, "No thought. <think>a</think>", "", "No thought. <think>a</think>"),
        (MARKS, "<thin air", "", "<thin air"),
        (MARKS, "  <th", "", "  <th"),
        (MARKS, "", "", ""),
        (MARKS, "<think>a </thin b", "a </thin b", ""),
        (MARKS, "<think>a\n</thi", "a\n</thi", ""),
        (MARKS, "<think>a</think>b</think>c<think>", "a", "b</think>c<think>"),
        (OPEN, "a\n</think>\n\nb", "a", "b"),
        (OPEN, "\n<think>\na</think>b", "a", "b"),
        (OPEN, "<thin</think>b", "<thin", "b"),
        (OPEN, "</think>\n", "", ""),
        (OPEN, "never ends", "never ends", ""),
        (OPEN, "a << b <</think>c", "a << b <", "c"),
    ],
)
def test_the_marks_divide_the_text(marks: ReasoningMarks, text: str, reasoning: str, content: str) -> None:
    expected = {Channel.REASONING: reasoning, Channel.CONTENT: content}
    assert split(marks, [text]) == expected
    assert split(marks, list(text)) == expected, "cut at every character"


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "/", "think>", "\n", " ", "a", "</th"]), max_size=10),
    st.sampled_from([MARKS, OPEN]),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_the_channels_do_not_depend_on_how_the_text_is_cut(words: list[str], marks: ReasoningMarks, cuts: list[int]) -> None:
    text = "".join(words)
    places = [0, *sorted(cuts), len(text)]
    parts = [text[start:stop] for start, stop in pairwise(places) if stop > start]
    assert split(marks, parts) == split(marks, [text]) == split(marks, list(text))


def test_reasoning_that_is_not_shown_is_left_out() -> None:
    hidden = ReasoningMarks("<think>", "</think>", is_shown=False)
    assert split(hidden, list("<think>secret</think>told")) == {Channel.REASONING: "", Channel.CONTENT: "told"}


class _CountedReasoning(ReasoningSplitter):
    """Counts the characters that it has to look at in the reasoning."""

    n_read = 0

    def _reason(self) -> str:
        self.n_read += len(self._held)
        return super()._reason()


@pytest.mark.parametrize(("end", "blanks"), [("</think>", ""), ("more", "\n  " * 500), ("", "\n  " * 500)])
def test_blanks_without_an_end_are_read_once(end: str, blanks: str) -> None:
    splitter = _CountedReasoning(OPEN)
    pieces = [piece for part in ["text", *["\n  "] * 500, end] for piece in splitter.push(part)] + splitter.flush()
    assert "".join(piece.text for piece in pieces) == "text" + blanks + end.removesuffix("</think>")
    assert splitter.n_read <= 3 * 1600
