"""Stop strings: which part of a growing text may be shown, and where it ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class StopStringFilter:
    """Passes on the text of one sequence up to its first stop string. `is_matched`: a stop string was found.

    Invariant: what is returned, joined, contains no stop string (except a kept one at its end), and it does not depend on how
    the text was cut into pieces. Text that could be the start of a stop string is held back until the next piece
    decides.
    """

    def __init__(self, stop_strings: Sequence[str], *, keeps_match: bool = False) -> None:
        """keeps_match: the stop string that is found is returned too, as the last text."""
        self._stop_strings = tuple(filter(None, stop_strings))
        self._keeps_match = keeps_match
        self._held = ""
        self.is_matched = False
        self.matched = ""  # the stop string that was found
        self.is_looking = bool(self._stop_strings)  # False: all text is passed on as it is

    def push(self, piece: str) -> str:
        """Take the next piece of text; returns what is safe to show now: "" for everything after a stop string."""
        if not self.is_looking:
            return piece
        if self.is_matched or not piece:
            return ""
        text = self._held + piece
        if any(s in text for s in self._stop_strings):
            self.is_matched, self._held = True, ""
            at, self.matched = self._first_complete(text)
            return text[: at + len(self.matched)] if self._keeps_match else text[:at]
        safe = len(text) - held_length(text, self._stop_strings)
        self._held = text[safe:]
        return text[:safe]

    def flush(self) -> str:
        """The text is over; returns the text that was held back."""
        rest, self._held = self._held, ""
        return rest

    def _first_complete(self, text: str) -> tuple[int, str]:
        """(where it starts, the stop string) of the one that ends first in `text`; the longest if several end there."""
        _, at, found = min((at + len(s), at, s) for s in self._stop_strings if (at := text.find(s)) >= 0)
        return at, found


def held_length(text: str, wanted: Sequence[str]) -> int:
    """Length of the longest suffix of `text` that is a proper prefix of a wanted string."""
    longest, size = 0, len(text)
    for s in wanted:
        first, at = s[:1], size - len(s)
        # only where the first character of `s` stands can its beginning begin
        while (at := text.find(first, max(at + 1, 0), size - longest)) >= 0:
            if s.startswith(text[at:]):
                longest = size - at
                break
    return longest
