"""Groups of equal requests under random use: each open request is computed or has all that a computed one has, never both."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from actors.gateway.lifecycle.coalescing import Coalescing
from actors.gateway.lifecycle.step_rows import StepRows
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.text.detokenizer import NumberText
from messages.generation.sequences import Suspicion
from messages.generation.terms import Terms
from messages.outcomes import EndReason
from tests.support.depth import examples
from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.request_examples import spec_of

_N_TOKENS = 5
_ANSWERS = [oracle([1, 2], _N_TOKENS, seed) for seed in range(2)]  # of the sequences of a request
_STOP_STRINGS = {b"whole": [], b"stopped": [ids_text(_ANSWERS[1][:3])[-6:-1]]}  # by the key of a group


class GroupMachine(RuleBasedStateMachine):
    """`computed`: the numbers of the requests that a scheduler would have. `open`: those that are not over."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = Coalescing()
        self.open: list[Request] = []
        self.computed: set[int] = set()
        self.n_asked = 0

    @rule(data=st.data(), n_requests=st.integers(1, 3))
    def ask(self, data: st.DataObject, n_requests: int) -> None:
        for _ in range(n_requests):
            key, priority = data.draw(st.sampled_from([*_STOP_STRINGS])), data.draw(st.integers(0, 1))
            self._ask(key, priority, data.draw(st.sampled_from([1, 8])))

    def _ask(self, key: bytes, priority: int, group_tokens: int) -> None:
        terms = Terms(stop=_STOP_STRINGS[key], priority=priority, group_tokens=group_tokens)
        spec = msgspec.structs.replace(spec_of(n=len(_ANSWERS)), terms=terms)
        self.n_asked += 1
        request = Request(self.n_asked, spec, lambda prompt: NumberText(), 0.0)
        self.open.append(request)
        leader = self.groups.leader_for(key, terms)
        if leader is None:
            self.groups.lead(key, request)
            self.computed.add(request.number)
        else:
            assert leader.spec.terms.priority <= priority
            assert leader.spec.terms.group_tokens <= group_tokens
            self._record(self.groups.join(request, leader), [])

    @precondition(lambda self: self.open)
    @rule(data=st.data(), index=st.integers(0, 1), n=st.integers(1, _N_TOKENS))
    def tokens(self, data: st.DataObject, index: int, n: int) -> None:
        """A scheduler sends tokens of a sequence, and its ending with the last ones."""
        request = data.draw(st.sampled_from([one for one in self.open if one.number in self.computed]))
        sequence, rows = request.sequences[index], StepRows()
        if sequence.ended is not None:
            return
        first = len(sequence.ids)
        sequence.accept(first, _ANSWERS[index][first : first + n])
        rows.add(sequence, first)
        if sequence.ended is not None or len(sequence.ids) == _N_TOKENS:
            sequence.end(Ended(reason="length"))
            rows.ended(sequence)
        self._follow(rows)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), reason=st.sampled_from(["failed", "quarantined"]), n_losses=st.integers(0, 2))
    def failure(self, data: st.DataObject, reason: EndReason, n_losses: int) -> None:
        """One sequence of a computed request fails; the others are still computed."""
        request = data.draw(st.sampled_from([one for one in self.open if one.number in self.computed]))
        sequence = next(one for one in request.sequences if one.ended is None)
        sequence.n_losses = n_losses
        sequence.suspicion = Suspicion(deaths=n_losses, certain=0, reach=99, passed=0) if n_losses else None
        n_alone = len(self.groups.followers_of(request)) if n_losses or reason == "quarantined" else 0
        before = set(self.computed)
        self._end(request, Ended(reason=reason), [sequence])
        new = [one for one in self.open if one.number in self.computed - before]
        assert len(new) >= n_alone, "those that may kill are computed together, not one after the other"
        assert all(one.sequences[sequence.index].n_losses == n_losses for one in new)
        assert all(one.sequences[sequence.index].suspicion == sequence.suspicion for one in new)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.open))
        self._end(request, Ended(reason="cancelled"), request.sequences)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        """The journal cannot record a request."""
        request = data.draw(st.sampled_from(self.open))
        for sequence in request.sequences:
            sequence.withdraw(Ended(reason="failed"))
        self._submit(self.groups.leave(request))
        self._close(request)

    @invariant()
    def each_open_request_is_computed_or_follows_one_that_is(self) -> None:
        leader_of = {f.number: one for one in self.open for f in self.groups.followers_of(one)}
        for request in self.open:
            leader = leader_of.get(request.number)
            assert (leader is None) == (request.number in self.computed)
            for sequence in request.sequences:
                assert sequence.ids == _ANSWERS[sequence.index][: len(sequence.ids)]
                if leader is not None:
                    assert leader.number in self.computed
                    source = leader.sequences[sequence.index]
                    assert (source.ids, source.texts, source.tail) == (sequence.ids, sequence.texts, sequence.tail)
                    assert _reason(source.ended) == _reason(sequence.ended)

    @invariant()
    def nothing_is_left_of_requests_that_are_over(self) -> None:
        assert self.groups._group_by_number.keys() <= {one.number for one in self.open}
        joinable = {id(group) for group in self.groups._group_by_key.values()}
        assert joinable <= {id(group) for group in self.groups._group_by_number.values()}

    def _end(self, request: Request, ended: Ended, sequences: list[Any]) -> None:
        rows = StepRows()
        for sequence in sequences:
            if sequence.end(ended):
                rows.ended(sequence)
        self._follow(rows)

    def _follow(self, rows: StepRows) -> None:
        to_submit = self.groups.follow(rows)
        self._record(rows, to_submit)

    def _record(self, rows: StepRows, to_submit: list[Request]) -> None:
        """As the publisher: each new token and each ending comes once, and requests whose last ending has come are over."""
        for sequence, first, stop in rows.rows:
            assert first == sequence.n_visible
            sequence.publish(stop, False)
        for sequence in rows.endings:
            assert not sequence.is_end_visible
            sequence.publish(sequence.n_visible, True)
        for request in {id(sequence.request): sequence.request for sequence in rows.endings}.values():
            if all(sequence.is_end_visible for sequence in request.sequences):
                self.groups.over(request)
                self._close(request)
        self._submit(to_submit)

    def _submit(self, requests: list[Request]) -> None:
        for request in requests:
            assert request.number not in self.computed, "it is submitted once"
            if any(sequence.ended is None for sequence in request.sequences):
                self.computed.add(request.number)

    def _close(self, request: Request) -> None:
        self.open.remove(request)
        self.computed.discard(request.number)


def _reason(ended: Ended | None) -> str:
    return "" if ended is None else ended.reason


def test_random_use() -> None:
    run_state_machine_as_test(GroupMachine, settings=examples(60))
