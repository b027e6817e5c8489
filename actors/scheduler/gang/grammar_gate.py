"""Holds back sequences whose grammars would make a step wait. Pure: the actor sends what `take_unsent` returns.

A sequence is planned once every rank has compiled its grammar. One whose masks are slow is planned when the ranks have had the
time to compute the next ones. A sequence in a slot keeps its grammar there; for those that wait, the ranks keep the grammars
that were used last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from actors.scheduler.sequences.sequence import Sequence, State
from messages.steps import GrammarPrepared, PrepareGrammar

_MOST_READY = 24  # ranks keep 64, and a grammar beside bounded reasoning is two
_MOST_ASKED = 8  # at once; a rank compiles some of them side by side
_AGAIN_S = 2.0  # a question or an answer may be lost
GRAMMAR_LIMIT_S = 60.0  # admission has compiled it within two seconds of a processor


@dataclass
class _Asked:
    """A grammar that some ranks have not compiled yet."""

    wanted: PrepareGrammar
    missing: set[str]  # names of these ranks
    since_s: float
    sent_s: float


class GrammarGate:
    """The grammars of one epoch. now_s: the monotonic clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._epoch, self._ranks = 0, frozenset[str]()
        self._next_number = 0
        self._ready: OrderedDict[str, None] = OrderedDict()  # the last used one last
        self._asked: dict[str, _Asked] = {}  # by text
        self._unsent: list[PrepareGrammar] = []

    def begin(self, epoch: int, ranks: Iterable[str]) -> None:
        """An epoch has begun. ranks: those of its gang; none if they are of the last release, and compile what plans bring."""
        self._epoch, self._ranks = epoch, frozenset(ranks)
        self._ready.clear()
        self._asked.clear()
        self._unsent.clear()

    def is_open(self, sequence: Sequence) -> bool:
        """True if a sequence may be planned. Asks for its grammar if that is not known to be ready."""
        return sequence.terms.grammar is None or (self._is_compiled(sequence) and self._is_rested(sequence))

    def _is_rested(self, sequence: Sequence) -> bool:
        state = sequence.grammar_state
        if not state.is_slow:
            return True
        return not sequence.in_flight and not sequence.is_verifying and self._now_s() >= state.rests_until_s

    def _is_compiled(self, sequence: Sequence) -> bool:
        grammar, state = sequence.terms.grammar, sequence.grammar_state
        if grammar is None or not self._ranks or (sequence.state is State.RUNNING and state.is_ready(sequence.stay)):
            return True
        if grammar.text in self._ready:
            self._ready.move_to_end(grammar.text)
            state.compiled(sequence.stay)
            return True
        if grammar.text not in self._asked and len(self._asked) < _MOST_ASKED:
            self._next_number += 1
            wanted = PrepareGrammar(epoch=self._epoch, number=self._next_number, text=grammar.text)
            self._asked[grammar.text] = _Asked(wanted, set(self._ranks), self._now_s(), self._now_s())
            self._unsent.append(wanted)
        return False

    def take_unsent(self) -> list[PrepareGrammar]:
        """What every rank is to be asked."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def prepared(self, rank: str, answer: GrammarPrepared) -> None:
        """A rank has compiled a grammar."""
        for text, asked in self._asked.items():
            if (asked.wanted.epoch, asked.wanted.number) == (answer.epoch, answer.number):
                asked.missing.discard(rank)
                if not asked.missing:
                    del self._asked[text]
                    self._ready[text] = None
                    if len(self._ready) > _MOST_READY:
                        self._ready.popitem(last=False)
                return

    def take_overdue(self) -> list[str]:
        """Grammars that some rank could not compile in time; they are forgotten. Others are asked for again after a while."""
        now_s = self._now_s()
        overdue = [text for text, asked in self._asked.items() if now_s - asked.since_s >= GRAMMAR_LIMIT_S]
        for text in overdue:
            del self._asked[text]
        for asked in self._asked.values():
            if now_s - asked.sent_s >= _AGAIN_S:
                asked.sent_s = now_s
                self._unsent.append(asked.wanted)
        return overdue
