"""What simulated clients ask for, and what they must get."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

import msgspec

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.requests.request_spec import RequestSpec
from gpu_workers.hash_chain import hash_chain_tokens
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms

_LONGEST = 250  # tokens of a sequence of which the smallest simulated device has the pages


class ClientKind(Enum):
    """How a client asks."""

    IN_PROCESS = "in_process"  # in the gateway's process: tokens with their numbers, also of several sequences
    ZEROMQ = "zeromq"  # with the client library, asked again under its id at any gateway
    STREAM = "stream"  # HTTP, streamed, with an Idempotency-Key; after a cut it goes on with Last-Event-ID
    RESUME = "resume"  # the same, but after a cut it reads GET /v1/streams/{id}
    PLAIN = "plain"  # HTTP, streamed, one connection that is never made again
    WHOLE = "whole"  # HTTP, not streamed, asked again with its request_id


@dataclass(frozen=True)
class PlannedRequest:
    """What one client asks for. `leaves_after`: it leaves after so many tokens, -1: never."""

    request: str
    gateway: str
    prompt: list[int]
    max_tokens: int
    seed: int
    n: int = 1  # sequences
    stop_at: int = -1  # the token with this number in the first sequence is a stop token, -1: none
    leaves_after: int = -1
    asks_after_s: float = 0.0  # when it asks, after the beginning
    client_kind: ClientKind = ClientKind.IN_PROCESS
    vocabulary: int = 32_768
    stops: list[int] | None = None  # stop tokens; None: the one at `stop_at`

    def __post_init__(self) -> None:
        seeds = [self._seed_of(index) for index in range(self.n)]
        whole = [hash_chain_tokens(self.prompt, self.max_tokens, seed, self.vocabulary) for seed in seeds]
        stops = self.stops if self.stops is not None else [] if self.stop_at < 0 else [whole[0][self.stop_at]]
        self.__dict__["stop_tokens"] = stops
        self.__dict__["expected"] = [_cut(tokens, stops) for tokens in whole]

    stop_tokens: list[int] = field(init=False)
    expected: list[list[int]] = field(init=False)  # the tokens of the hash chain, for each sequence

    def answered_by(self, vocabulary: int) -> PlannedRequest:
        """The same request, with the answer of a hash chain of this vocabulary."""
        return replace(self, vocabulary=vocabulary, stops=self.stop_tokens)

    @property
    def has_ids(self) -> bool:
        """The answer has token ids."""
        return self.client_kind in (ClientKind.IN_PROCESS, ClientKind.ZEROMQ, ClientKind.WHOLE)

    def shown(self, index: int) -> list[int]:
        """The tokens whose text is shown: all but a stop token."""
        return [token for token in self.expected[index] if token not in self.stop_tokens]

    def _seed_of(self, index: int) -> int:
        return self._spec().sampling_of(index).seed if self.seed else 0

    def _spec(self) -> RequestSpec:
        """Only for the seeds of its sequences."""
        return RequestSpec(
            request="", api="zeromq", created_s=0.0, prompts=[b""], sampling=self.sampling, terms=Terms(max_tokens=1), n=self.n
        )

    @property
    def sampling(self) -> Sampling:
        """How its tokens are chosen."""
        return Sampling(temperature=1.0, seed=self.seed) if self.seed else Sampling(temperature=0.0)

    @property
    def wishes(self) -> dict[str, float]:
        """Terms on which only the order of sequences depends; equal prompts have the same ones."""
        kind = sum(self.prompt) % 4
        return {"priority": kind} | ({"ttft_ms": 200.0, "deadline_ms": 2000.0} if kind == 3 else {})

    def new_request(self) -> NewRequest:
        """The request as the gateway gets it from the ZeroMQ server, the same each time."""
        return NewRequest(
            request=self.request,
            api="zeromq",
            sampling=self.sampling,
            terms=msgspec.convert({"max_tokens": self.max_tokens, "stop_tokens": self.stop_tokens, **self.wishes}, Terms),
            ids=[self.prompt],
            n=self.n,
            is_resumable=True,
            digest=self.request,
        )

    def http_call(self, last_event: int) -> bytes:
        """The bytes of its HTTP call. `last_event`: the last one that it has read."""
        if self.client_kind is ClientKind.RESUME and last_event:
            return _get(f"/v1/streams/{self.request}?starting_after={last_event}")
        body = {"max_tokens": self.max_tokens, "n": self.n, "stop_token_ids": self.stop_tokens, **self.wishes}
        body |= {"temperature": 1.0, "seed": self.seed} if self.seed else {"temperature": 0.0}
        if self.client_kind is ClientKind.WHOLE:
            return _post("/v1/generate", body | {"tokens": self.prompt, "request_id": self.request})
        key = {} if self.client_kind is ClientKind.PLAIN else {"idempotency-key": self.request}
        resumed = {"last-event-id": str(last_event)} if last_event else {}
        return _post("/v1/completions", body | {"prompt": self.prompt, "stream": True}, **key, **resumed)


def _post(path: str, body: dict[str, object], **headers: str) -> bytes:
    data = msgspec.json.encode(body)
    given = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\nhost: x\r\n{given}content-length: {len(data)}\r\n\r\n".encode() + data


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode()


def _cut(tokens: list[int], stops: list[int]) -> list[int]:
    """The tokens up to the first stop token, which is the last one."""
    return tokens[: 1 + next((i for i, token in enumerate(tokens) if token in stops), len(tokens))]


def planned_requests(
    chance: random.Random, n_clients: int, gateways: list[str], longest_wait_s: float, vocabulary: int
) -> Iterator[PlannedRequest]:
    """What the clients ask for. Some prompts have a common beginning; some clients leave before the end; some ask what the one
    before has asked, which a cache of answers may know."""
    before: PlannedRequest | None = None
    shared = [chance.randrange(1000) % vocabulary for _ in range(chance.randrange(0, 70))]
    for index in range(n_clients):
        n_tokens = chance.randrange(1, 60)
        own = [chance.randrange(1000) % vocabulary for _ in range(chance.randrange(1, 60))]
        client_kind = chance.choice((ClientKind.IN_PROCESS, ClientKind.ZEROMQ, ClientKind.ZEROMQ, *ClientKind))
        planned = PlannedRequest(
            request=f"request-{index}",
            gateway=chance.choice(gateways),
            prompt=shared + own if chance.random() < 0.5 else own,
            max_tokens=n_tokens,
            seed=chance.choice((0, chance.randrange(1, 2**31))),
            n=1 if client_kind in (ClientKind.ZEROMQ, ClientKind.WHOLE) else chance.choice((1, 1, 1, 2, 3)),
            stop_at=chance.randrange(n_tokens) if chance.random() < 0.3 else -1,
            leaves_after=chance.randrange(n_tokens) if chance.random() < 0.1 else -1,
            asks_after_s=chance.uniform(0.0, longest_wait_s),
            client_kind=client_kind,
            vocabulary=vocabulary,
        )
        if before is not None and sum(own) % 4 == 0:
            n = before.n if client_kind not in (ClientKind.ZEROMQ, ClientKind.WHOLE) else 1
            same = {"prompt": before.prompt, "max_tokens": before.max_tokens, "seed": before.seed, "stop_at": before.stop_at}
            planned = replace(planned, **same, n=n, leaves_after=-1)
        before = planned
        yield planned


def asked_again(planned_requests: Iterable[PlannedRequest], chance: random.Random, later_s: float) -> Iterator[PlannedRequest]:
    """The same clients with longer prompts, but the second half of them ask with prompts of the first half, `later_s` later:
    these may have left the device, and the host tier too."""
    planned_requests = list(planned_requests)
    n_first = (len(planned_requests) + 1) // 2
    prompts = [_lengthened(planned, chance) for planned in planned_requests[:n_first]]
    for planned, prompt in zip(planned_requests, prompts, strict=False):
        yield replace(planned, prompt=prompt)
    for planned in planned_requests[n_first:]:
        fitting = [prompt for prompt in prompts if len(prompt) + planned.max_tokens <= _LONGEST]
        yield replace(planned, prompt=chance.choice(fitting or [planned.prompt]), asks_after_s=planned.asks_after_s + later_s)


def _lengthened(planned: PlannedRequest, chance: random.Random) -> list[int]:
    n_more = min(chance.randrange(30, 100), _LONGEST - len(planned.prompt) - planned.max_tokens)
    return planned.prompt + [chance.randrange(1000) % planned.vocabulary for _ in range(n_more)]


def asked_alike(planned_requests: Iterable[PlannedRequest], chance: random.Random) -> Iterator[PlannedRequest]:
    """The same clients, but four at a time ask what the first of them asks, of the same gateway, shortly after each other. Two
    in five leave before the end."""
    first: PlannedRequest | None = None
    for index, planned in enumerate(planned_requests):
        if first is None or not index % 4:
            first = planned
        n = first.n if planned.client_kind not in (ClientKind.ZEROMQ, ClientKind.WHOLE) else 1
        same = {"prompt": first.prompt, "max_tokens": first.max_tokens, "seed": first.seed, "stop_at": first.stop_at}
        leaves_after = chance.randrange(first.max_tokens) if chance.random() < 0.4 else -1
        asks_after_s = first.asks_after_s + chance.choice((0.0, chance.uniform(0.0, 0.3)))
        yield replace(planned, **same, n=n, gateway=first.gateway, leaves_after=leaves_after, asks_after_s=asks_after_s)


def with_long_starts(planned_requests: Iterable[PlannedRequest], chance: random.Random) -> Iterator[PlannedRequest]:
    """The same clients, but each prompt begins with one of two texts of some pages, so that it is worth while to move them."""
    starts = [[chance.randrange(1000) for _ in range(chance.randrange(34, 66))] for _ in range(2)]
    for planned in planned_requests:
        start = [token % planned.vocabulary for token in chance.choice(starts)]
        yield replace(planned, prompt=start + planned.prompt)
