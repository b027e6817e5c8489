"""Blanks at the end of a growing text, of which it is not known yet whether they will be shown. Pure."""

from __future__ import annotations

BLANKS = " \t\r\n"


class BlankRun:
    """Keeps blanks that come after a text which is held back and consists of blanks too.

    More blanks decide nothing there, so a splitter reads them with the text that follows. So an answer that goes on and on with
    blanks takes a time that grows with its length, not with the square of it.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []

    def keeps(self, text: str) -> bool:
        """Keep `text` and return True if only blanks are held back, and these are more of them. Else it is to be read."""
        if not self._parts or text.strip(BLANKS):
            return False
        self._parts.append(text)
        return True

    def may_begin(self, held: str, text: str) -> None:
        """`text` has been read, and `held` is held back since: the run begins if both are blank."""
        if held and not text.strip(BLANKS) and not held.lstrip(BLANKS):
            self._parts.append("")

    def take(self) -> str:
        """End the run; returns what was kept, which belongs between what is held back and the next text."""
        if not self._parts:
            return ""
        kept = "".join(self._parts)
        self._parts.clear()
        return kept
