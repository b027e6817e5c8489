"""Shows an answer as it comes: plain text for a pipe; on a terminal reasoning is dimmed and control characters are left out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from messages.client.answer import Piece

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
# A model may write anything, also sequences that change a terminal; tab and line feed stay
_NO_CONTROLS = dict.fromkeys([*(code for code in range(0x20) if code not in (0x09, 0x0A)), *range(0x7F, 0xA0)])


class AnswerView:
    """Writes one answer. `text`: of its content so far, as the model wrote it."""

    def __init__(self, out: TextIO = sys.stdout, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._clock, self._is_terminal = out, clock, out.isatty()
        self._began_s, self._first_s = clock(), -1.0
        self._is_dimmed = False
        self.text, self.n_tokens = "", 0

    @property
    def first_s(self) -> float:
        """Seconds until the first text; until now if there is none."""
        return self.total_s if self._first_s < 0.0 else self._first_s

    @property
    def total_s(self) -> float:
        """Seconds until now."""
        return self._clock() - self._began_s

    def show(self, piece: Piece) -> None:
        """Write what a piece adds."""
        if self._first_s < 0.0:
            self._first_s = self.total_s
        self.text += piece.text
        self.n_tokens += len(piece.ids)
        if piece.reasoning and self._is_terminal:
            self._write(piece.reasoning, is_dimmed=True)
        if piece.text:
            self._write(piece.text, is_dimmed=False)

    def end(self) -> None:
        """Write what follows an answer, whether it is whole or not."""
        self._out.write(f"{_PLAIN if self._is_dimmed else ''}\n")
        self._out.flush()
        self._is_dimmed = False

    def _write(self, text: str, *, is_dimmed: bool) -> None:
        self._out.write("".join(self._styled(text, is_dimmed)) if self._is_terminal else text)
        self._out.flush()

    def _styled(self, text: str, is_dimmed: bool) -> Iterator[str]:
        if is_dimmed != self._is_dimmed:
            yield _DIM if is_dimmed else f"{_PLAIN}\n\n"
            self._is_dimmed = is_dimmed
        yield text.translate(_NO_CONTROLS)
