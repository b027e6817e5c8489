"""Which sequences may be planned now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection

from actors.scheduler.sequences.sequence import Sequence

MayRun = Callable[[Sequence], bool]


class Permission:
    """Permits the sequences whose gateways have credit, and whose grammars, if they have any, are open."""

    def __init__(self, paused: Collection[str] = (), is_open: MayRun = lambda sequence: True) -> None:
        """paused: gateways without credit. is_open: asked for sequences that have a grammar."""
        self._paused, self._is_open, self.pauses_any = paused, is_open, bool(paused)

    def __call__(self, sequence: Sequence) -> bool:
        return sequence.gateway not in self._paused and (sequence.terms.grammar is None or self._is_open(sequence))


def permits_all(may_run: MayRun) -> bool:
    """True if each sequence without a grammar may be planned; False if that is not known."""
    return isinstance(may_run, Permission) and not may_run.pauses_any
