"""The text of an answer in channels: read many tokens at once, it is the same as token by token."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.requests import split_text
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.requests.split_text import BLOCK_TOKENS, SplitText, n_reasoning_tokens, pieces_of
from actors.gateway.text.channels import Splitting
from actors.gateway.text.pieces import Channel, TextPiece
from actors.gateway.text.reasoning_text import ReasoningMarks, ReasoningSplitter
from actors.gateway.text.tools.dialects import Dialect, ToolRules
from tests.support.answers.written_answer import written

MARKS = [
    ReasoningMarks("<think>", "</think>", is_open=is_open, is_shown=is_shown)
    for is_open in (False, True)
    for is_shown in (False, True)
]
TOOLS = [ToolRules(dialect, ["now"], most_calls=most) for dialect in Dialect for most in (0, 1)]
WORDS = [
    *("<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "now", "arguments": ', "{}", "}", "{", "[", "]", "now"),
    *("<function=now>", "<parameter=a>", "</parameter>", "</function>", "(", ")", '"', "\n", " ", "<", "text", ""),
]  # fmt: skip


def runs_of(pieces: Iterable[TextPiece]) -> list[tuple[Channel, str]]:
    """The runs of one channel."""
    runs = groupby(pieces, key=lambda piece: piece.channel)
    return [(channel, "".join(piece.text for piece in run)) for channel, run in runs]


def token_by_token(request: Request) -> tuple[list[list[TextPiece]], int]:
    """The pieces of each token and of the ending of an answer, and how many of its tokens begin within the reasoning."""
    (sequence,) = request.sequences
    split, pieces, n_tokens = SplitText(sequence), list[list[TextPiece]](), 0
    reasoning = request.spec.splitting and request.spec.splitting.reasoning
    state = ReasoningSplitter(reasoning or ReasoningMarks("<never>", "</never>"))
    for number, text in enumerate(sequence.texts):
        n_tokens += state.is_reasoning
        state.push(text)
        pieces.append(split.of_token(number))
    return [*pieces, split.of_ending()], n_tokens


@given(
    st.lists(st.sampled_from(WORDS), max_size=14),
    st.builds(Splitting, reasoning=st.none() | st.sampled_from(MARKS), tools=st.none() | st.sampled_from(TOOLS)),
    st.sampled_from(["stop", "length"]),
    st.integers(1, 5),
)
def test_an_answer_that_is_read_at_once_is_the_same(texts: list[str], splitting: Splitting, reason: str, block: int) -> None:
    request = written(texts, "chat", splitting, Ended(reason=reason))  # pyright: ignore[reportArgumentType] one of the reasons
    pieces, n_tokens = token_by_token(request)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split_text, "BLOCK_TOKENS", block)
        assert pieces_of(request.sequences[0]) == runs_of(chain(*pieces))
        assert n_reasoning_tokens(request) == n_tokens
        for start in range(len(texts) + 1):
            split = SplitText(request.sequences[0])
            assert runs_of(split.pass_to(start)) == runs_of(chain(*pieces[:start]))
            assert [*(split.of_token(number) for number in range(start, len(texts))), split.of_ending()] == pieces[start:]


def test_a_long_answer_is_not_read_token_by_token(monkeypatch: pytest.MonkeyPatch) -> None:
    n_read = 0
    push = ReasoningSplitter.push

    def counted(self: ReasoningSplitter, text: str) -> list[TextPiece]:
        nonlocal n_read
        n_read += 1
        return push(self, text)

    monkeypatch.setattr(ReasoningSplitter, "push", counted)
    texts = ["<think>", *["word "] * 20 * BLOCK_TOKENS, "</think>", *["word "] * 20 * BLOCK_TOKENS]
    request = written(texts, "chat", Splitting(reasoning=MARKS[0]))
    pieces_of(request.sequences[0])
    assert n_read <= 41 + 2
    assert n_reasoning_tokens(request) == 20 * BLOCK_TOKENS + 1
    assert n_read <= 43 + 20 + 3 + 2 * BLOCK_TOKENS
    n_read = 0
    SplitText(request.sequences[0]).of_token(30 * BLOCK_TOKENS)
    assert n_read <= 30 + 1
