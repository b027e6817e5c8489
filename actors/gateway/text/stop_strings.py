"""Stop strings: what may be shown of a growing text, and where it must end. Pure."""

from __future__ import annotations

from collections.abc import Sequence


class StopWatch:
    """Watches one text for stop strings.

    Law: the concatenation of everything returned never contains a stop string and never depends on how the text was cut
    into pieces. Text that could be the beginning of a stop string is held back until it is decided.
    """

    def __init__(self, stop_strings: Sequence[str]) -> None:
        self._stop_strings = tuple(s for s in stop_strings if s)
        self._held = ""
        self.is_met = False

    def push(self, piece: str) -> str:
        """Take the next piece of text; returns what is safe to show now. After a stop string nothing is shown."""
        if not self._stop_strings:
            return piece
        if self.is_met or not piece:
            return ""
        text = self._held + piece
        found = [at for s in self._stop_strings if (at := text.find(s)) >= 0]
        if found:
            self.is_met, self._held = True, ""
            return text[: self._first_complete(text, min(found))]
        safe = len(text) - self._held_length(text)
        self._held = text[safe:]
        return text[:safe]

    def flush(self) -> str:
        """The text is over: what was held back is shown after all."""
        rest, self._held = self._held, ""
        return rest

    def _first_complete(self, text: str, fallback: int) -> int:
        """Where the stop string begins that is complete first (the longest one among those that end there)."""
        best_end, best_at = len(text) + 1, fallback
        for s in self._stop_strings:
            at = text.find(s)
            if at >= 0 and (at + len(s), at) < (best_end, best_at):
                best_end, best_at = at + len(s), at
        return best_at

    def _held_length(self, text: str) -> int:
        """Length of the longest end of the text that is a proper beginning of a stop string."""
        longest = 0
        for s in self._stop_strings:
            for length in range(min(len(s) - 1, len(text)), longest, -1):
                if text.endswith(s[:length]):
                    longest = length
                    break
        return longest
