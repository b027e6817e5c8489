"""The text of one sequence in channels, token by token: a pure function of its request and its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.text.pieces import Channel, TextPiece
from actors.gateway.text.reasoning_text import ReasoningMarks, ReasoningSplitter

BLOCK_TOKENS = 256  # whose text is split at once where nobody asks for single tokens: a twentieth of the time


class SplitText:
    """Splits the text of one sequence. Its tokens are read in order."""

    def __init__(self, sequence: GrowingSequence) -> None:
        """`sequence`: of a request with a `splitting`."""
        splitting = sequence.spec.splitting
        assert splitting is not None, "its text is split"
        self._sequence, self._splitter = sequence, splitting.splitter()
        self.n_read = 0  # tokens
        self.n_calls = 0  # of tools, that have begun
        self.n_whole_calls = 0  # of these, without those that have turned out to be none

    def of_token(self, number: int) -> list[TextPiece]:
        """What became certain with a token; [] if nothing did. Tokens before it that were not read are passed."""
        if self.n_read < number:
            self.pass_to(number)
        text = self._sequence.texts[self.n_read]
        self.n_read += 1
        return self._counted(self._splitter.push(text)) if text else []

    def pass_to(self, number: int) -> list[TextPiece]:
        """What the tokens before `number` that were not read yet made certain, in fewer pieces than `of_token` returns."""
        pieces: list[TextPiece] = []
        for start in range(self.n_read, number, BLOCK_TOKENS):
            pieces += self._splitter.push("".join(self._sequence.texts[start : min(start + BLOCK_TOKENS, number)]))
        self.n_read = max(self.n_read, number)
        return self._counted(pieces)

    def of_rest(self) -> list[TextPiece]:
        """All that becomes certain from the next token to the ending: as `of_token` and `of_ending`, in fewer pieces."""
        return self.pass_to(len(self._sequence.texts)) + self.of_ending()

    def of_ending(self) -> list[TextPiece]:
        """What became certain with the ending."""
        self.pass_to(len(self._sequence.texts))
        pieces, ended = self._splitter.push(self._sequence.tail) + self._splitter.flush(), self._sequence.ended
        if ended is None or ended.reason != "stop":  # a call that was cut off remains one
            pieces = [piece for piece in pieces if piece.channel is not Channel.NO_CALL]
        return self._counted(pieces)

    def _counted(self, pieces: list[TextPiece]) -> list[TextPiece]:
        for channel, _ in pieces:
            self.n_calls += channel is Channel.CALL
            self.n_whole_calls += (channel is Channel.CALL) - (channel is Channel.NO_CALL)
        return pieces


def pieces_of(sequence: GrowingSequence) -> list[TextPiece]:
    """The whole text of a sequence, in order; all of it is content if it is not split. Neighbours differ in their channel."""
    if sequence.spec.splitting is None:
        text = "".join(sequence.texts) + sequence.tail
        return [TextPiece(Channel.CONTENT, text)] if text else []
    runs = groupby(SplitText(sequence).of_rest(), key=attrgetter("channel"))
    return [TextPiece(channel, "".join(piece.text for piece in run)) for channel, run in runs]


def n_reasoning_tokens(request: Request) -> int:
    """Tokens of the reasoning in all sequences of a request."""
    if request.spec.splitting is None or (marks := request.spec.splitting.reasoning) is None:
        return 0
    return sum(_n_reasoning(marks, sequence.texts) for sequence in request.sequences)


def _n_reasoning(marks: ReasoningMarks, texts: Sequence[str]) -> int:
    """How many of these tokens begin within the reasoning."""
    splitter, n_tokens = ReasoningSplitter(marks), 0
    for first in range(0, len(texts), BLOCK_TOKENS):
        block = texts[first : first + BLOCK_TOKENS]
        if splitter.is_reasoning:
            splitter.push("".join(block))
            if splitter.is_reasoning:
                n_tokens += len(block)
                continue
            splitter = ReasoningSplitter(marks)  # it ends in this block, which is read again token by token
            splitter.push("".join(texts[:first]))
        for text in block:
            n_tokens += splitter.is_reasoning
            splitter.push(text)
        if splitter.is_over:
            break
    return n_tokens
