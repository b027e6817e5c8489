"""Drafts that have come from speculation and wait for the step that can use them. Late or wrong ones are dropped. Pure."""

from __future__ import annotations

from actors.scheduler.sequence import Sequence


class DraftBox:
    """One draft per sequence: ids for positions start, start + 1, ..."""

    def __init__(self) -> None:
        self._by_number: dict[int, tuple[int, list[int]]] = {}

    def put(self, number: int, start: int, ids: list[int]) -> None:
        """A draft came in; it replaces an older one."""
        self._by_number[number] = (start, ids)

    def drop(self, number: int) -> None:
        """The sequence has ended, or its draft has failed."""
        self._by_number.pop(number, None)

    def clear(self) -> None:
        """Speculation is gone."""
        self._by_number.clear()

    def reaches_beyond_flight(self, sequence: Sequence) -> bool:
        """Would this draft still propose something once the steps on their way are known?

        Then it is worth not planning another plain step for this sequence now.
        """
        draft = self._by_number.get(sequence.number)
        return draft is not None and draft[0] + len(draft[1]) > sequence.on_device

    def take(self, sequence: Sequence, depth: int) -> list[int]:
        """Up to `depth` drafts for the positions behind all known tokens; none when the draft was overtaken by other tokens.

        What lies beyond `depth` stays for the next step.
        """
        draft = self._by_number.get(sequence.number)
        if draft is None:
            return []
        start, ids = draft
        overtaken = sequence.known - start
        if overtaken < 0 or overtaken >= len(ids) or ids[:overtaken] != sequence.tokens(start).tolist():
            self.drop(sequence.number)
            return []
        return ids[overtaken : overtaken + depth]
