"""The text of one sequence in channels, token by token: a pure function of its request and its tokens."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.text.pieces import Channel, TextPiece


class SplitText:
    """Splits the text of one sequence. Its tokens are read in order."""

    def __init__(self, sequence: GrowingSequence) -> None:
        """`sequence`: of a request with a `splitting`."""
        splitting = sequence.request.spec.splitting
        assert splitting is not None, "its text is split"
        self._sequence, self._splitter = sequence, splitting.splitter()
        self.n_read = 0  # tokens
        self.n_reasoning = 0  # of these, the ones of the reasoning
        self.n_calls = 0  # of tools, that have begun
        self.n_whole_calls = 0  # of these, without those that have turned out to be none

    def of_token(self, number: int) -> list[TextPiece]:
        """What became certain with a token; [] if nothing did. Tokens before it that were not read are passed."""
        while self.n_read < number:
            self._push()
        return self._push()

    def of_ending(self) -> list[TextPiece]:
        """What became certain with the ending."""
        while self.n_read < len(self._sequence.texts):
            self._push()
        pieces, ended = self._splitter.push(self._sequence.tail) + self._splitter.flush(), self._sequence.ended
        if ended is None or ended.reason != "stop":  # a call that was cut off remains one
            pieces = [piece for piece in pieces if piece.channel is not Channel.NO_CALL]
        return self._counted(pieces)

    def _counted(self, pieces: list[TextPiece]) -> list[TextPiece]:
        for channel, _ in pieces:
            self.n_calls += channel is Channel.CALL
            self.n_whole_calls += (channel is Channel.CALL) - (channel is Channel.NO_CALL)
        return pieces

    def _push(self) -> list[TextPiece]:
        text = self._sequence.texts[self.n_read]
        self.n_read += 1
        self.n_reasoning += self._splitter.is_reasoning
        return self._counted(self._splitter.push(text)) if text else []


def pieces_of(sequence: GrowingSequence) -> list[TextPiece]:
    """The whole text of a sequence, in order; all of it is content if it is not split. Neighbours differ in their channel."""
    if sequence.request.spec.splitting is None:
        text = "".join(sequence.texts) + sequence.tail
        return [TextPiece(Channel.CONTENT, text)] if text else []
    split = SplitText(sequence)
    pieces = [piece for number in range(len(sequence.texts)) for piece in split.of_token(number)] + split.of_ending()
    runs = groupby(pieces, key=attrgetter("channel"))
    return [TextPiece(channel, "".join(piece.text for piece in run)) for channel, run in runs]


def n_reasoning_tokens(request: Request) -> int:
    """Tokens of the reasoning in all sequences of a request."""
    if request.spec.splitting is None or request.spec.splitting.reasoning is None:
        return 0
    splits = [SplitText(sequence) for sequence in request.sequences]
    for split in splits:
        split.of_ending()
    return sum(split.n_reasoning for split in splits)
