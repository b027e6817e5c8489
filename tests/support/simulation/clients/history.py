"""What the clients of one simulated run have seen, and the checks of all promises about it. Pure.

kept        what a client has seen stays true: no gap, no repeat, no other token, text or ending, the same bytes for the same
            event, whichever connection and gateway it came by
right       every token is the oracle's
once        every sequence of an accepted request ends once, for the reason that the oracle knows
accepted    a request that was accepted is not refused for good later
held        a plain HTTP connection is not cut, unless a gateway and the custodian were out of service together; see world.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tests.support.gateway.fake_scheduler import ids_text
from tests.support.simulation.clients.planned_requests import PlannedRequest


class Kind(Enum):
    """What a client can see."""

    TOKENS = "tokens"  # `ids` from number `first` on, and `text`
    TEXT = "text"  # of a stream without token ids
    ENDED = "ended"
    EVENT = "event"  # an event with an id and its bytes
    REFUSED = "refused"  # for good
    CUT = "cut"  # a connection that should have gone on


@dataclass(frozen=True)
class Seen:
    """One thing that a client has seen."""

    request: str
    kind: Kind
    index: int = 0  # of the sequence
    first: int = 0
    ids: Sequence[int] = ()
    text: str = ""
    reason: str = ""
    detail: str = ""
    event: int = 0
    data: bytes = b""


@dataclass
class _Answer:
    """What is known of one sequence so far."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    ended: tuple[str, str] | None = None


class History:
    """Everything that clients have seen, in order. `problems`: the broken promises."""

    def __init__(self, fallback_vocabulary: int = 0) -> None:
        """`fallback_vocabulary`: of a fallback model, which may answer a request as a whole; 0: there is none."""
        self.seen: list[Seen] = []
        self.problems: list[str] = []
        self._fallback_vocabulary = fallback_vocabulary
        self._planned_requests: dict[str, list[PlannedRequest]] = {}  # with the answers that may be the right ones
        self._answers: dict[tuple[str, int], _Answer] = {}
        self._events: dict[tuple[str, int], bytes] = {}

    @property
    def has_fallback(self) -> bool:
        """True if the answer to a request may be that of one of two models."""
        return self._fallback_vocabulary > 0

    def expect(self, planned: PlannedRequest) -> None:
        """A client will ask for this."""
        vocabulary = self._fallback_vocabulary
        self._planned_requests[planned.request] = [planned, *([planned.answered_by(vocabulary)] if vocabulary else [])]

    def note(self, seen: Seen) -> None:
        """A client has seen this. Broken promises are found at once."""
        self.seen.append(seen)
        problem = _CHECKS[seen.kind](self, seen)
        if problem:
            self.problems.append(f"{seen.request}: {problem}")

    def is_broken(self, request: str) -> bool:
        """A promise about this request was broken."""
        return any(problem.startswith(request + ":") for problem in self.problems)

    def answer(self, request: str, index: int = 0) -> _Answer:
        """What is known of one sequence."""
        return self._answers.setdefault((request, index), _Answer())

    def _unless(self, request: str, problem_of: Callable[[PlannedRequest], str]) -> str:
        """ "" if what was seen fits an answer that may be the right one; those that it does not fit are wrong from now on."""
        problems = [(planned, problem_of(planned)) for planned in self._planned_requests[request]]
        if fitting := [planned for planned, problem in problems if not problem]:
            self._planned_requests[request] = fitting
            return ""
        return problems[0][1]

    def _check_tokens(self, seen: Seen) -> str:
        answer = self.answer(seen.request, seen.index)
        if answer.ended is not None and (seen.ids or seen.text):
            return "more tokens after the ending"
        if seen.first != len(answer.ids):
            return f"token {seen.first} after {len(answer.ids)} tokens: a gap or a repeat"
        answer.ids += seen.ids
        answer.text += seen.text
        n_ids, wrong = len(answer.ids), f"wrong token within the first {len(answer.ids)}"
        return self._unless(seen.request, lambda p: "" if answer.ids == p.expected[seen.index][:n_ids] else wrong)

    def _check_text(self, seen: Seen) -> str:
        answer = self.answer(seen.request, seen.index)
        if answer.ended is not None and seen.text:
            return "more text after the ending"
        answer.text += seen.text
        wrong = f"wrong text within the first {len(answer.text)} characters"
        return self._unless(seen.request, lambda p: "" if ids_text(p.shown(seen.index)).startswith(answer.text) else wrong)

    def _check_ended(self, seen: Seen) -> str:
        answer = self.answer(seen.request, seen.index)
        before, answer.ended = answer.ended, (seen.reason, seen.detail)
        if before is not None:
            return "" if before == answer.ended else f"a second ending: {answer.ended} after {before}"
        return self._unless(seen.request, lambda planned: self._wrong_ending(seen, answer, planned))

    @staticmethod
    def _wrong_ending(seen: Seen, answer: _Answer, planned: PlannedRequest) -> str:
        expected, shown = planned.expected[seen.index], planned.shown(seen.index)
        reason = "stop" if len(shown) < len(expected) else "length"
        if seen.reason != reason:
            return f"expected {reason}, got {seen.reason}: {seen.detail}"
        if answer.text != ids_text(shown) or (planned.has_ids and answer.ids != expected):
            return "the answer is not the oracle's"
        return ""

    def _check_event(self, seen: Seen) -> str:
        before = self._events.setdefault((seen.request, seen.event), seen.data)
        return "" if before == seen.data else f"event {seen.event} has other bytes: {before!r}, then {seen.data!r}"

    def _check_refused(self, seen: Seen) -> str:
        return f"refused: {seen.detail}"

    def _check_cut(self, seen: Seen) -> str:
        return f"a connection was cut: {seen.detail}"


_CHECKS = {
    Kind.TOKENS: History._check_tokens,
    Kind.TEXT: History._check_text,
    Kind.ENDED: History._check_ended,
    Kind.EVENT: History._check_event,
    Kind.REFUSED: History._check_refused,
    Kind.CUT: History._check_cut,
}
