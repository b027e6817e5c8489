"""Admits requests. Each API (HTTP, ZeroMQ) parses a request, passes it to `Admission`, and answers with the result.

    find      look the id up: returns the request that has it, or refuses another request with the same id
    begin     check the fields, the state of the server, its room for sequences and the caller; then reserve the sequences
    finish    tokenise -> check the quarantine -> find out whether an equal or similar one has its answer -> admit

The bytes of a request count against the budget `bodies`, which all APIs share, until the request is accepted or refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

import msgspec

from actors.gateway.admission.body_budget import BodyBudget
from actors.gateway.admission.model_choice import ModelChoice
from actors.gateway.admission.new_request import Naming, NewRequest
from actors.gateway.admission.similar_question import SimilarQuestions
from actors.gateway.admission.spec_builder import SpecBuilder
from actors.gateway.answer_cache.access import CacheAccess
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.similar_answers.question import Asked
from actors.gateway.tenants.tenant_limits import TenantLimits

_IN_ONE_TURN = ("chat", "completion", "generate", "messages")


class Arrival:
    """A request on its way in: checked, with its sequences reserved, not yet tokenised."""

    __slots__ = ("_accepted", "_outcome", "counted_bytes", "new")

    def __init__(self, new: NewRequest, counted_bytes: int) -> None:
        self.new, self.counted_bytes = new, counted_bytes
        self._outcome: Request | Refusal | None = None
        self._accepted: asyncio.Future[Request | Refusal] | None = None  # made when somebody waits, which is rare

    def end(self, outcome: Request | Refusal) -> None:
        """Set the outcome and wake every `wait_accepted`."""
        self._outcome = outcome
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_result(outcome)

    async def wait_accepted(self) -> Request:
        """The accepted request. Raises: Refusal."""
        if (outcome := self._outcome) is None:
            if self._accepted is None:
                self._accepted = asyncio.get_running_loop().create_future()
            outcome = await asyncio.shield(self._accepted)
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome


def _is_replaced(known: Request, new: NewRequest) -> bool:
    """True if a new request may take the id of this known one, which is over and has no answer."""
    endings = [sequence.ended for sequence in known.sequences]
    if new.naming is Naming.FIXED or known.spec.api == "zeromq" or None in endings:
        return False
    return any(ended is not None and (ended.is_failure or ended.reason == "cancelled") for ended in endings)


def _is_alone(new: NewRequest, spec: RequestSpec) -> bool:
    """True if a client waits for the whole answer of this request alone, over HTTP, if nobody can ask for it again, and if its
    body is made in one turn of the event loop, because it has no more than an answer."""
    is_asked_once = new.is_whole and not new.is_resumable and new.api in _IN_ONE_TURN
    return is_asked_once and not (spec.echo or spec.with_token_ids)


class Admission:
    """Admits the requests of all APIs of one gateway."""

    def __init__(
        self,
        builder: SpecBuilder,
        bodies: BodyBudget,
        manager: RequestManager,
        wall_s: Callable[[], float],
        questions: SimilarQuestions | None = None,
        limits: TenantLimits | None = None,
        choice: ModelChoice | None = None,
    ) -> None:
        """`questions`: None: no answers are kept for similar ones. `limits`: of tenants, whose requests nobody else reads.
        None: there are no tenants. `choice`: of the model that answers; None: there is one."""
        self.builder, self.bodies = builder, bodies
        self._choice, self._specs = choice, choice or builder
        self._manager, self._wall_s = manager, wall_s
        self._questions = questions
        self.limits = limits
        self._arrivals: dict[str, Arrival] = {}  # by request id

    def builder_of(self, model: int) -> SpecBuilder:
        """The builder for the served model with this number."""
        return self.builder if self._choice is None else self._choice.builders[model]

    async def admit(self, new: NewRequest) -> Request:
        """The accepted request: a new one, or the known one with the same id. Raises: Refusal."""
        known = self.find_same_id(new)
        if known is None:
            return await self.finish(self.begin(new))
        return known if isinstance(known, Request) else await known.wait_accepted()

    def check_open(self) -> None:
        """Return if one more sequence could be accepted now. Called before a body is read. Raises: Refusal."""
        self._manager.gate.check(1)

    def find_same_id(self, new: NewRequest) -> Request | Arrival | None:
        """The request with the same id: accepted already, still on its way in, or None.

        Raises: Refusal when that is a different request.
        """
        known = self._arrivals.get(new.request) or self._manager.find(new.request)
        if isinstance(known, Request) and not new.must_be_known and self.may_read(known, new.terms.caller):
            known = None if _is_replaced(known, new) else known
        if known is None:
            if new.must_be_known:
                raise self.unknown(new.request, new.request_field)
            return None
        digest = known.new.digest if isinstance(known, Arrival) else known.spec.digest
        if not new.is_resumable or digest != new.digest or not self.may_read(known, new.terms.caller):
            other = "belongs to another request; expected the same body, byte for byte, or another id"
            detail = f"{new.request_field}: {new.request!r} {other}"
            why = "idempotency_key_reused" if new.naming is Naming.KEY else "conflict"
            raise Refusal(why, detail, field=new.request_field)
        return known

    def knows(self, request_id: str) -> bool:
        """True if a request has this id: on its way in, running, or retained."""
        return request_id in self._arrivals or self._manager.knows(request_id)

    async def known(self, request_id: str, field: str, caller: bytes | None = None) -> Request:
        """The request with this id. `field`: what gives the id, for the refusal. `caller`: who asks, a client; None: another
        gateway, which has asked already. Raises: Refusal, also for a request of another tenant."""
        arrival = self._arrivals.get(request_id)
        request = await arrival.wait_accepted() if arrival is not None else self._manager.find(request_id)
        if request is None or not (caller is None or self.may_read(request, caller)):
            raise self.unknown(request_id, field)
        return request

    def may_read(self, known: Request | Arrival, caller: bytes) -> bool:
        """True if this caller may read a request and cancel it."""
        terms = known.new.terms if isinstance(known, Arrival) else known.spec.terms
        return self.limits is None or terms.caller == caller

    def unknown(self, request_id: str, field: str) -> Refusal:
        """The refusal of an id that no request has: status 410 if one had it, else 404."""
        detail = f"{field}: expected the id of a request that is running or finished not long ago, got {request_id!r}"
        if request_id in self._manager.finished.retained.forgotten:
            return Refusal("gone", detail, field=field)
        return Refusal("not_found", detail, field=field)

    def begin(self, new: NewRequest, n_bytes: int = 0) -> Arrival:
        """Check a request whose id is not known, and reserve its sequences and bytes. Follow with `finish`.

        `n_bytes`: size of the request as received; 0 if its API has counted it while reading. Raises: Refusal.
        """
        if self.limits is not None:  # before the gate, which goes by the weight and the priority of the tenant
            new = msgspec.structs.replace(new, terms=self.limits.shaped(new.terms))
        self._specs.validate(new)
        self._manager.gate.check(new.n_sequences)
        is_of_main = self._choice is None or self._choice.is_of_main(new)
        self._manager.gate.check_caller(new.n_sequences, new.terms, is_of_main=is_of_main)
        self._manager.poison.check_caller(new.terms.caller)
        arrival = Arrival(new, self.bodies.count(n_bytes, caller=new.terms.caller))
        self._manager.gate.reserve(new.n_sequences, new.terms)
        self._arrivals[new.request] = arrival
        return arrival

    async def finish(self, arrival: Arrival) -> Request:
        """Tokenise a request and accept it. Raises: Refusal."""
        outcome: Request | Refusal | None = None
        try:
            spec = await self._checked(arrival.new)
            async with self._allowed([spec]) as allowed:
                spec, access = allowed[0], self._cache_access(arrival.new, spec)
                access = access._replace(is_alone=_is_alone(arrival.new, spec))
                asked = None if self._questions is None else await self._asked(self._questions, arrival.new, spec, access)
                self._check_room([(spec, access)])
                outcome = request = self._accept(spec, access, asked)
        except Refusal as refusal:
            outcome = refusal
            raise
        finally:
            self._close(arrival, outcome or Refusal("internal", "the request could not be read"))
        return request

    async def admit_all(self, news: Sequence[NewRequest], at_place: Callable[[int, Refusal], Refusal]) -> list[Request]:
        """The accepted requests of a batch, in its order: new ones, or the known ones with the same ids. All of the new ones
        are accepted, or none. `at_place`: makes the refusal of the batch of that of one of its requests. Raises: Refusal."""
        found = [self.find_same_id(new) for new in news]
        fresh = {at: new for at, (new, known) in enumerate(zip(news, found, strict=True)) if known is None}
        accepted = await self._admit_new(fresh, at_place)
        for at, known in enumerate(found):
            if known is not None:
                accepted[at] = known if isinstance(known, Request) else await known.wait_accepted()
        return [accepted[at] for at in range(len(news))]

    async def _admit_new(
        self, news: Mapping[int, NewRequest], at_place: Callable[[int, Refusal], Refusal]
    ) -> dict[int, Request]:
        """Accept new requests, each by its place in a batch. Raises: Refusal, and then none is accepted."""
        self._manager.gate.check(sum(new.n_sequences for new in news.values()))
        arrivals, specs, at = dict[int, Arrival](), dict[int, RequestSpec](), 0
        accepted, outcome = dict[int, Request](), Refusal("internal", "the request could not be read")
        try:
            for at, new in news.items():
                arrivals[at] = self.begin(new)
            for at, arrival in arrivals.items():
                specs[at] = await self._checked(arrival.new)
            async with self._allowed([*specs.values()]) as allowed:
                by_place = zip(specs, allowed, strict=True)
                ready = {at: (spec, self._cache_access(news[at], spec)) for at, spec in by_place}
                self._check_room(ready.values())
                accepted = {at: self._accept(*one) for at, one in ready.items()}
        except Refusal as refusal:
            outcome = at_place(at, refusal) if refusal.field else refusal
            raise outcome from None
        finally:
            for at, arrival in arrivals.items():
                self._close(arrival, accepted.get(at, outcome))
        return accepted

    def _allowed(self, specs: list[RequestSpec]) -> AbstractAsyncContextManager[list[RequestSpec]]:
        """The time in which requests are accepted that the limits of their tenant allow. Raises: Refusal."""
        return nullcontext(specs) if self.limits is None else self.limits.taken(specs)

    def _accept(self, spec: RequestSpec, access: CacheAccess, asked: Asked | None = None) -> Request:
        request = self._manager.accept(spec, access, asked)
        if self.limits is not None:
            self.limits.accepted(request)
        return request

    async def _checked(self, new: NewRequest) -> RequestSpec:
        """A new request, tokenised. Raises: Refusal."""
        spec = await self._specs.build(new, self._wall_s())
        self._manager.poison.check(spec)
        return spec if spec.model else self._manager.gate.let_in(spec)

    def _check_room(self, ready: Iterable[tuple[RequestSpec, CacheAccess]]) -> None:
        """Return if these requests of one caller may be accepted now. One that has the answer of an equal one needs no room in
        the queue. Raises: Refusal."""
        has_source = self._manager.equals.has_source
        self._manager.gate.check_state()  # a drain may have begun since `begin`
        self._manager.gate.check_tokens([spec for spec, access in ready if not has_source(spec, access)])

    def _cache_access(self, new: NewRequest, spec: RequestSpec) -> CacheAccess:
        """What the request may do with the answers of equal ones."""
        return self._manager.equals.access(spec, new.cache_use, has_seed=new.has_seed)

    async def _asked(
        self, questions: SimilarQuestions, new: NewRequest, spec: RequestSpec, access: CacheAccess
    ) -> Asked | None:
        """What is kept for similar questions, looked up if no equal request has the answer."""
        equals = self._manager.equals
        if equals.similar is None or equals.has_source(spec, access):
            return None
        question = questions.question_of(new, spec, access)
        return None if question is None else await equals.similar.look_up(question)

    def _close(self, arrival: Arrival, outcome: Request | Refusal) -> None:
        """Free what an arrival has reserved, and end it."""
        self._manager.gate.release(arrival.new.n_sequences, arrival.new.terms)
        self.bodies.release(arrival.counted_bytes, arrival.new.terms.caller)
        del self._arrivals[arrival.new.request]
        arrival.end(outcome)
