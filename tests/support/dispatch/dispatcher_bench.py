"""A dispatcher alone, with a clock and peers that the test owns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from actors.gateway.dispatch.dispatcher import Dispatcher
from actors.gateway.dispatch.post import Post, Timer
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.detokenizer import NumberText
from messages.errors import MailboxFull
from messages.generation.recall import Recall
from messages.generation.replica_load import ReplicaLoad
from messages.generation.sampling import Sampling
from messages.generation.sequences import Cancel, Submit
from messages.generation.terms import Terms
from messages.wire.message import NO_TRACE, Message

_LOOK_S = 0.25


class ManualTimer(Timer):
    """A timer that runs when the test says so."""

    def __init__(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.delay_s, self._callback, self.is_cancelled = delay_s, callback, False

    def cancel(self) -> None:
        self.is_cancelled = True

    def run(self) -> None:
        assert not self.is_cancelled
        self._callback()


class PeersPost(Post):
    """Peers by name; a full one refuses every message."""

    def __init__(self, *names: str) -> None:
        self.names, self.full = list(names), set[str]()
        self.sent: list[tuple[str, Message]] = []
        self.timers: list[ManualTimer] = []
        self.clock_s = 0.0

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        if name in self.full:
            raise MailboxFull(name)
        self.sent.append((name, message))

    def living(self, role: str) -> list[str]:
        return [name for name in self.names if name.split("/")[0] == role]

    def incarnation_of(self, name: str) -> int:
        return 1 if name in self.names else -1

    def now_s(self) -> float:
        return self.clock_s

    def wall_s(self) -> float:
        return 0.0

    def later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(ManualTimer(delay_s, callback))
        return self.timers[-1]

    def submits(self) -> list[tuple[str, Submit]]:
        return [(name, message) for name, message in self.sent if isinstance(message, Submit)]

    def cancels(self) -> list[tuple[str, Cancel]]:
        return [(name, message) for name, message in self.sent if isinstance(message, Cancel)]


class DispatcherBench:
    """A dispatcher, and what it has given up."""

    def __init__(
        self, *names: str, resubmit_budget: int = 2, names_holders: bool = False, are_told_apart: bool = False
    ) -> None:
        self.post = PeersPost(*names)
        self.given_up: list[tuple[GrowingSequence, Ended]] = []
        self._requests: list[Request] = []  # sequences do not keep them
        settings = GatewaySettings(
            resubmit_budget=resubmit_budget, names_holders=names_holders, caller_header="x-caller" if are_told_apart else ""
        )
        self.dispatcher = Dispatcher(settings, 1, self.post, self._give_up, self._blame)

    def _give_up(self, sequence: GrowingSequence, ended: Ended) -> None:
        self.dispatcher.remove(sequence, None)
        sequence.end(ended)
        self.given_up.append((sequence, ended))

    def _blame(self, sequence: GrowingSequence, detail: str) -> None:
        self._give_up(sequence, Ended(reason="quarantined", code="quarantined", detail=detail))

    def submit(
        self, prompt: list[int], n: int = 1, n_prompts: int = 1, model: int = 0, **terms: object
    ) -> list[GrowingSequence]:
        spec = RequestSpec(
            request="r",
            api="generate",
            created_s=0.0,
            prompts=[np.array(prompt, "<i4").tobytes()] * n_prompts,
            sampling=Sampling(),
            terms=Terms(**{"max_tokens": 4, **terms}),  # pyright: ignore[reportArgumentType]
            n=n,
            model=model,
        )
        request = Request(len(self._requests) + 1, spec, lambda prompt: NumberText(), 0.0)
        self._requests.append(request)
        self.dispatcher.submit_request(request)
        return request.sequences

    @property
    def last_attempt(self) -> int:
        return self.post.submits()[-1][1].attempt

    def report(self, name: str, *, waiting: int, running: int, waiting_tokens: int, running_tokens: int, rate: float) -> None:
        """A replica reports its load. `rate`: tokens a second, half of them of prompts."""
        load = ReplicaLoad(
            number=self.dispatcher.loads.version + 1, waiting=waiting, running=running, waiting_tokens=waiting_tokens,
            running_tokens=running_tokens, pages_used=0, pages=9, prefill_rate=rate / 2, decode_rate=rate / 2,
        )  # fmt: skip
        self.dispatcher.loads.note(name, load)

    def look(self) -> None:
        """A quarter of a second passes, after which queues are looked at."""
        self.post.clock_s += _LOOK_S
        timer = self.dispatcher.moves._timer
        assert timer is not None
        timer.run()  # type: ignore[attr-defined]

    def recalls(self) -> list[tuple[str, list[int]]]:
        """(scheduler, attempts) of each Recall until now."""
        return [(name, message.attempts.tolist()) for name, message in self.post.sent if isinstance(message, Recall)]

    def retry(self) -> None:
        """The last timer is the one of the retry."""
        self.post.timers[-1].run()
