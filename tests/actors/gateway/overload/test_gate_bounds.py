"""The gate under random arrivals, deaths and clock jumps: what waits is bounded, and nobody is shut out by another caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from actors.gateway.dispatch.replica_loads import ReplicaLoads
from actors.gateway.journal.journal import Journal
from actors.gateway.lifecycle.admission_gate import AdmissionGate
from actors.gateway.overload.overload_metrics import OverloadMetrics
from actors.gateway.requests.reader import Reader
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.settings import GatewaySettings
from messages.generation.terms import Terms
from tests.support.gateway.request_examples import load_of, request_of, spec_of

_CALLERS = (b"flood", b"other", b"third")
_SETTINGS = GatewaySettings(caller_header="x-key", max_active_requests=40, max_queued_tokens=4000)
_MOVES = ("ask", "ask", "ask", "flood", "token", "token", "end", "scheduler dies", "report", "gateway dies")
_DRAWN = st.lists(st.tuples(st.sampled_from(_MOVES), st.integers(0, 2), st.integers(0, 1000)), max_size=80)


def asked(caller: bytes, n_prompt: int, max_tokens: int, n: int = 1, priority: int = 0) -> RequestSpec:
    """A request of a caller."""
    terms = Terms(max_tokens=max_tokens, caller=caller, priority=priority)
    return msgspec.structs.replace(spec_of(n=n), prompts=[np.zeros(n_prompt, "<i4").tobytes()], terms=terms)


@dataclass
class _Server:
    """The gate of one gateway after the other, and what they have accepted."""

    loads: ReplicaLoads = field(default_factory=ReplicaLoads)
    open: list[Request] = field(default_factory=list)
    gate: AdmissionGate = field(init=False)
    n_reports: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A gateway begins, and takes over what the one before it had accepted."""
        metrics = OverloadMetrics(CollectorRegistry())
        self.gate = AdmissionGate(_SETTINGS, Journal(""), self.loads, lambda: ["scheduler/0"], metrics)
        self.gate.was_ready = True
        for request in self.open:
            for sequence in request.sequences:
                sequence.queued_tokens = 0
            self.gate.accepted(request)

    def ask(self, spec: RequestSpec) -> Refusal | None:
        """Ask as `Admission` does."""
        try:
            self.gate.check(spec.n)
            self.gate.check_caller(spec.n, spec.terms)
            self.gate.reserve(spec.n, spec.terms)
        except Refusal as refusal:
            return refusal
        try:
            spec = self.gate.let_in(spec)
            self.gate.check_tokens([spec])
            request = request_of(spec)
            self.gate.accepted(request)
            self.open.append(request)
        except Refusal as refusal:
            return refusal
        finally:
            self.gate.release(spec.n, spec.terms)
        return None

    def token(self, at: int) -> None:
        """A request gets a token, as the publisher does it."""
        if self.open:
            for sequence in self.open[at % len(self.open)].sequences:
                sequence.accept(len(sequence.ids), [7])
                if sequence.queued_tokens:
                    self.gate.queued.started(sequence)

    def end(self, at: int) -> None:
        """A request ends."""
        if self.open:
            request = self.open.pop(at % len(self.open))
            for sequence in request.sequences:
                request.n_open -= 1
                self.gate.ended(sequence)
            self.gate.let_go(request)

    def move(self, move: str, who: int, size: int) -> Refusal | None:
        match move:
            case "ask":
                return self.ask(asked(_CALLERS[who], 1 + size, 1 + size // 2, n=1 + who, priority=size % 3 - 1))
            case "flood":
                for _ in range(20):
                    self.ask(asked(_CALLERS[0], 1 + size, 100))
            case "token":
                self.token(size)
            case "end":
                self.end(size)
            case "scheduler dies":
                self.loads.remove("scheduler/0")
            case "report":
                self.n_reports += 1
                self.loads.note("scheduler/0", load_of(self.n_reports, size * 10, level=size % 5))
            case _:
                self.start()
        return None


@given(_DRAWN)
def test_what_waits_is_bounded_whatever_happens(moves: list[tuple[str, int, int]]) -> None:
    server = _Server()
    for move in moves:
        n_before = server.gate.queued.shares.n_held
        refusal = server.move(*move)
        gate, queued = server.gate, server.gate.queued.shares
        waiting = [s for request in server.open for s in request.sequences if not s.ids]
        assert queued.n_held == sum(s.queued_tokens for s in waiting)
        assert gate.n_active == sum(request.n_open for request in server.open) <= 40
        if move[0] != "gateway dies":  # which may expect longer answers than the one before it
            assert queued.n_held <= max(4000, n_before)
        if refusal is not None:
            assert 1.0 <= refusal.retry_after_s <= 60.0
            assert refusal.code == "overloaded"
            assert any(digit.isdigit() for digit in refusal.detail)


@given(_DRAWN, st.integers(1, 300))
def test_a_caller_that_waits_for_nothing_is_let_in_beside_a_flood(moves: list[tuple[str, int, int]], n_prompt: int) -> None:
    server = _Server()
    for move, _, size in moves:  # all of them by one caller
        server.move(move, 0, size)
    server.move("flood", 0, 100)
    n_free = server.gate.queued.shares.n_free
    refusal = server.ask(asked(b"other", n_prompt, 10))
    assert refusal is None or refusal.fine_code == "queue_full"
    assert (refusal is None) == (n_prompt + 10 <= n_free)


@given(_DRAWN)
def test_all_is_given_back_at_the_end(moves: list[tuple[str, int, int]]) -> None:
    server = _Server()
    for move in moves:
        server.move(*move)
    while server.open:
        server.end(0)
    assert (server.gate.n_active, server.gate.n_reserved, server.gate.queued.shares.n_held) == (0, 0, 0)
    assert server.gate.queued.shares.n_callers == 0


def refusal_of(server: _Server, **fields: Any) -> Refusal:
    """The refusal of a request of the flood."""
    refusal = server.ask(asked(b"flood", 100, 10, **fields))
    assert refusal is not None
    return refusal


def test_refusals_name_the_bound_its_value_what_came_and_when_to_come_back() -> None:
    server = _Server()
    server.loads.note("scheduler/0", load_of(1, 3200, rate=10.0))
    while server.ask(asked(b"flood", 990, 10)) is None:
        pass
    refusal = server.ask(asked(b"flood", 990, 10))
    assert refusal is not None
    assert (refusal.fine_code, refusal.status, refusal.retry_after_s) == ("caller_share", 429, 60.0)
    assert refusal.detail == (
        "queue: expected at most 3200 tokens (prompts and expected output) in requests without a token yet of one caller, "
        "its share of 4000; got 3000 and 1000 more; what waits takes about 320 s; come back in 1m0s"
    )
    refusal = server.ask(asked(b"other", 1090, 10))
    assert refusal is not None
    assert (refusal.fine_code, refusal.retry_after_s) == ("queue_full", 10.0)
    assert refusal.detail.startswith("queue: expected at most 4000 tokens")
    assert "got 3000 and 1100 more" in refusal.detail


def test_a_flood_of_sequences_leaves_room_for_others() -> None:
    server = _Server()
    n_flood = 0
    while server.ask(asked(b"flood", 1, 1)) is None:
        n_flood += 1
    assert n_flood == 32, "four fifths of 40"
    assert refusal_of(server).detail.startswith("expected at most 32 sequences of one caller that are active or")
    assert server.ask(asked(b"other", 1, 1)) is None


def test_what_nobody_reads_counts_until_its_reader_has_left() -> None:
    server = _Server()
    while server.ask(asked(b"flood", 1, 1)) is None:
        pass
    unread = server.open[0]
    readers = [Reader(unread), Reader(unread)]
    server.end(0)
    for reader in readers:
        assert refusal_of(server).fine_code == "caller_share"
        reader.close()
        reader.close()
    assert server.ask(asked(b"flood", 1, 1)) is None
    assert refusal_of(server).fine_code == "caller_share"


def test_level_4_sheds_low_priorities_and_callers_with_their_share() -> None:
    server = _Server()
    assert server.ask(asked(b"flood", 100, 10)) is None
    assert server.ask(asked(b"third", 10, 10)) is None
    server.loads.note("scheduler/0", load_of(1, 700, level=4))
    shed = refusal_of(server)
    assert (shed.fine_code, shed.retry_after_s) == ("shed", 7.0)
    sheds = "the server sheds load (level 4 of degradation): expected"
    what = "tokens (prompts and expected output) in requests of one caller without a token yet, its fair share of 130; got 110"
    assert shed.detail == f"{sheds} less than 65 {what}; what waits takes about 7 s; come back in 7s"
    assert server.ask(asked(b"third", 10, 10)) is None, "it holds less than its share"
    low = server.ask(asked(b"other", 10, 10, priority=1))
    assert low is not None
    assert low.detail == f"{sheds} a priority of at most 0, got 1; what waits takes about 7 s; come back in 7s"
    assert server.ask(asked(b"other", 10, 10)) is None
