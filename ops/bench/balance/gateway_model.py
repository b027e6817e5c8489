"""A gateway with its real dispatcher. Its messages reach modelled replicas and a cache directory that knows everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from actors.gateway.dispatch.balancer import Balancer
from actors.gateway.dispatch.balancing.strategy import Choice, ChoiceReason
from actors.gateway.dispatch.dispatcher import Dispatcher
from actors.gateway.dispatch.post import Post
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.detokenizer import NoText
from actors.pages.chain_root import root_of
from actors.pages.page_hash import page_hashes
from messages.caches.prefixes import FindPrefix, PrefixFound
from messages.generation.recall import Recall
from messages.generation.sampling import Sampling
from messages.generation.sequences import Refused, Submit, Taken
from messages.generation.terms import Terms
from messages.ids import replica_of
from messages.wire.message import NO_TRACE, Message
from ops.bench.balance.replica_model import ModelledWork, ReplicaModel
from ops.bench.balance.virtual_time import PendingEvent, VirtualTime

FEWEST_SEQUENCES = "fewest_sequences"  # the choice before there were strategies
_HOP_S = 0.0005


class FewestSequences(Balancer):
    """The longest prefix up to twice the fewest own sequences and eight, then the fewest own sequences, then the name."""

    count: Callable[[Sequence[str]], Mapping[str, int]]

    def choose(self, names: Sequence[str], pages_by_name: Mapping[str, int], n_tokens: int, caller: bytes = b"") -> Choice:
        """As `Balancer.choose`."""
        load = self.count(names)
        ceiling = 2 * min(load.values()) + 8
        name = min(names, key=lambda one: (-pages_by_name.get(one, 0) if load[one] <= ceiling else 0, load[one], one))
        return Choice(name, ChoiceReason.LOAD)


class GatewayModel(Post):
    """One gateway. `first_token_s`: how long each request has waited for its first token. The name of a request is the length
    of its answer."""

    def __init__(
        self, index: int, balancing: str, time: VirtualTime, replicas: dict[str, ReplicaModel], n_gateways: int
    ) -> None:
        self._name, self._time, self._replicas = f"gateway/{index}", time, replicas
        self._others = [f"gateway/{i}" for i in range(n_gateways) if i != index]
        is_strategy = balancing != FEWEST_SEQUENCES
        settings = GatewaySettings(balancing=balancing) if is_strategy else GatewaySettings()  # type: ignore[arg-type]
        self.dispatcher = Dispatcher(settings, 1, self, self._give_up, lambda sequence, why: None)
        if not is_strategy:
            self.dispatcher.balancer = before = FewestSequences(settings, self, self.dispatcher.loads)
            before.count = self.dispatcher.book.loads
            self.dispatcher.moves.is_held_back = lambda: True
        self.first_token_s: list[float] = []
        self._n_requests = self.n_given_up = 0
        self._open: dict[int, Request] = {}  # by number; sequences do not keep them
        self._terms = Terms()

    def ask(self, tokens: np.ndarray, n_output: int) -> None:
        """A client asks. `tokens`: the prompt, int32 [n]."""
        self._n_requests += 1
        spec = RequestSpec(
            request=f"{n_output}", api="generate", created_s=0.0, prompts=[tokens.astype("<i4").tobytes()],
            sampling=Sampling(), terms=self._terms,
        )  # fmt: skip
        request = Request(self._n_requests, spec, lambda prompt: NoText(), self._time.now_s)
        self._open[request.number] = request
        self.dispatcher.submit_request(request)

    # -- Post -----------------------------------------------------------------------------------------------------

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        """Carry a message to where it is handled, after a hop."""
        if isinstance(message, Submit):
            hashes = page_hashes(message.tokens, root_of(b"", "")).tolist()
            work = ModelledWork(self._name, message.attempt, hashes, len(message.tokens), int(message.request))
            self._time.later(_HOP_S, lambda: self._take(name, work))
        elif isinstance(message, Recall):
            self._time.later(_HOP_S, lambda: self._recalled(name, message.attempts.tolist()))
        elif isinstance(message, FindPrefix):
            pages = {each: model.pages_of(message.hashes.tolist()) for each, model in self._replicas.items()}
            found = {each: n for each, n in pages.items() if n}
            answer = PrefixFound(query=message.query, replicas=[replica_of(n) for n in found], pages=list(found.values()))
            self._time.later(_HOP_S, lambda: self.dispatcher.on_prefix_found(answer))

    def _take(self, name: str, work: ModelledWork) -> None:
        self._replicas[name].submit(work)
        self._time.later(_HOP_S, lambda: self._taken(work.attempt))

    def _taken(self, attempt: int) -> None:
        self.dispatcher.on_taken(Taken(attempt=attempt))

    def _recalled(self, name: str, attempts: list[int]) -> None:
        for attempt in self._replicas[name].give_back(self._name, attempts):
            self.dispatcher.on_refused(Refused(attempt=attempt, code="overloaded", detail="", retryable=True))

    def on_first(self, work: ModelledWork) -> None:
        """An attempt has its first token."""
        if (sequence := self.dispatcher.book.find(work.attempt)) is not None:
            self.first_token_s.append(self._time.now_s - sequence.request.began_s)
            sequence.accept(0, [1])
            self.dispatcher.balancer.began(sequence)

    def on_end(self, work: ModelledWork) -> None:
        """An attempt has its last token."""
        if (sequence := self.dispatcher.book.find(work.attempt)) is not None:
            sequence.accept(1, [1] * (int(sequence.spec.request) - 1))
            self.dispatcher.remove(sequence, None)
            sequence.end(Ended(reason="length"))
            del self._open[sequence.request.number]

    def _give_up(self, sequence: GrowingSequence, ended: Ended) -> None:
        self.n_given_up += 1

    def living(self, role: str) -> list[str]:
        """All replicas, the directory and the other gateways."""
        return {"scheduler": list(self._replicas), "cache_directory": ["cache_directory/0"], "gateway": self._others}.get(
            role, []
        )

    def incarnation_of(self, name: str) -> int:
        """Nothing dies."""
        return 1

    def now_s(self) -> float:
        """The virtual clock."""
        return self._time.now_s

    def wall_s(self) -> float:
        """The virtual clock."""
        return self._time.now_s

    def later(self, delay_s: float, callback: Callable[[], None]) -> PendingEvent:
        """Call `callback` after `delay_s`."""
        return self._time.later(delay_s, callback)
