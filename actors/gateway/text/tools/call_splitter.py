"""Finds calls of tools in a growing text: what all dialects share. Pure.

A dialect says with which marks calls begin and what may follow. What turns out to be no call is content, so no text is lost.
White space around calls is dropped.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any

from actors.gateway.text.blank_run import BLANKS, BlankRun
from actors.gateway.text.pieces import Channel, Splitter, TextPiece
from actors.gateway.text.stop_strings import held_length

_NAME = re.compile(r'"name"\s*:\s*("(?:[^"\\]|\\.)*")')
WAIT = None  # of `CallSplitter.next_of`: more text decides


class CallSplitter(Splitter):
    """Splits a text into content and calls. `names`: of the tools; a call of another name is content.

    A dialect is a subclass. It has `marks`, which begin calls anywhere in the text, `first_marks`, which do so only at the
    beginning of the text, and `after_mark`, which reads a call. Text that is not decided yet is in `held`; what is decided is
    added to `out`. Every method that reads returns False to wait for more text; `go` sets the method that reads next.
    """

    marks: Sequence[str] = ()
    first_marks: Sequence[str] = ()

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)
        self.held, self.out = "", list[TextPiece]()
        self._blanks = BlankRun()  # after `held`
        self.begun = ""  # the text of the call that is being read, from its mark on
        self._read: Callable[[], bool] = self._read_start
        self._is_after_call = False

    def push(self, text: str) -> list[TextPiece]:
        if self._blanks.keeps(text):
            return []
        self.held += self._blanks.take() + text
        while self._read():
            pass
        self._blanks.may_begin(self.held, text)
        out, self.out = self.out, []
        return out

    def flush(self) -> list[TextPiece]:
        self.held += self._blanks.take()
        if self._read in (self._read_start, self._read_content):
            self._say(self.held)
        else:
            self.fail_at_end()
        self.held, out, self.out = "", self.out, []
        return out

    @abstractmethod
    def after_mark(self, mark: str) -> bool:
        """Read what follows `mark`, which is no longer in `held`. Returns False to wait for more text."""
        ...

    def fail_at_end(self) -> None:
        """The text has ended within a call: pass on what has come as content."""
        self._say(self.begun + self.held)

    def go(self, read: Callable[[], bool]) -> bool:
        """Set the method that reads next. Returns True: it can begin."""
        self._read = read
        return True

    def leave(self) -> bool:
        """End the call: text that follows is content. Returns True."""
        self.begun = ""
        return self.go(self._read_content)

    def fail(self) -> bool:
        """What has begun is no call: its text is content, and what is held is read again. Returns True."""
        self._say(self.begun)
        return self.leave()

    def called(self, *pieces: TextPiece) -> None:
        """Pass on the last pieces of a call, which is complete with them."""
        self.out += pieces
        self.begun, self._is_after_call = "", True

    def peek_of(self, *expected: str) -> str | None:
        """Which of these texts comes next, after white space. WAIT: more text is needed to say; "": none."""
        bare = self.held.lstrip(BLANKS)
        found = next((text for text in expected if bare.startswith(text)), "")
        return WAIT if not found and any(text.startswith(bare) for text in expected) else found

    def next_of(self, *expected: str) -> str | None:
        """Which of these texts comes next, and take it. WAIT: more text is needed to say; "": none."""
        if found := self.peek_of(*expected):
            self.take(self.held.index(found) + len(found))
        return found

    def take(self, n: int) -> str:
        """Move the next `n` characters from what is held to the call that has begun; returns them."""
        text, self.held = self.held[:n], self.held[n:]
        self.begun += text
        return text

    def give_back(self, n: int) -> None:
        """Undo `take` for the last `n` characters: they are read again."""
        self.begun, self.held = self.begun[:-n], self.begun[-n:] + self.held

    def _read_start(self) -> bool:
        bare = self.held.lstrip(BLANKS)
        for mark in self.first_marks:
            if bare.startswith(mark):
                return self._begin(len(self.held) - len(bare), mark)
        if any(mark.startswith(bare) for mark in self.first_marks):
            return False
        return self.go(self._read_content)

    def _read_content(self) -> bool:
        if self._is_after_call:
            self.held = self.held.lstrip(BLANKS)
        found = [(at, -len(mark), mark) for mark in self.marks if (at := self.held.find(mark)) >= 0]
        if found:
            at, _, mark = min(found)
            return self._begin(at, mark)
        safe = len(self.held) - held_length(self.held, self.marks)
        safe = len(self.held[:safe].rstrip(BLANKS))
        self._say(self.held[:safe])
        self.held = self.held[safe:]
        return False

    def _begin(self, at: int, mark: str) -> bool:
        content, stop = self.held[:at].rstrip(BLANKS), at + len(mark)
        self._say(content)
        self.begun, self.held = self.held[len(content) : stop], self.held[stop:]
        return self.go(lambda: self.after_mark(mark))

    def _say(self, text: str) -> None:
        if self._is_after_call:
            text = text.lstrip(BLANKS)
        if text:
            self.out.append(TextPiece(Channel.CONTENT, text))
            self._is_after_call = False


class FewCalls(Splitter):
    """Leaves out the calls after the first `most`."""

    def __init__(self, splitter: Splitter, most: int) -> None:
        self._splitter, self._most = splitter, most
        self._n_calls = 0

    def push(self, text: str) -> list[TextPiece]:
        return self._first_ones(self._splitter.push(text))

    def flush(self) -> list[TextPiece]:
        return self._first_ones(self._splitter.flush())

    def _first_ones(self, pieces: list[TextPiece]) -> list[TextPiece]:
        kept: list[TextPiece] = []
        for piece in pieces:
            self._n_calls += piece.channel is Channel.CALL
            is_too_many = self._n_calls > self._most
            if piece.channel is Channel.NO_CALL:
                self._n_calls -= 1
                kept.append(TextPiece(Channel.CONTENT, piece.text) if is_too_many else piece)
            elif piece.channel is Channel.CONTENT or not is_too_many:
                kept.append(piece)
        return kept


class ForcedCalls(Splitter):
    """For answers that a grammar makes calls and nothing else. One that ends before the arguments of a call begin has a call
    without arguments if the name has come, and nothing if it has not: a mark, or a half of a name, is no text for a reader."""

    def __init__(self, splitter: Splitter, names: Collection[str]) -> None:
        self._splitter, self._names = splitter, frozenset(names)

    def push(self, text: str) -> list[TextPiece]:
        return self._splitter.push(text)

    def flush(self) -> list[TextPiece]:
        return [one for piece in self._splitter.flush() if (one := self._begun(piece)) is not None]

    def _begun(self, piece: TextPiece) -> TextPiece | None:
        if piece.channel is not Channel.CONTENT:
            return piece
        found = _NAME.search(piece.text)
        name = json.loads(found[1]) if found else ""
        return TextPiece(Channel.CALL, name) if name in self._names else None


def json_text(value: Any) -> str:
    """A value as JSON text that can be sent. Raises: ValueError for what JSON lacks."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if any("\ud800" <= character <= "\udfff" for character in text):  # half of a character can only be sent as an escape
        return json.dumps(value)
    return text
