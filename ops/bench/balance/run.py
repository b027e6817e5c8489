"""One run: requests arrive at random, replicas compute them, and each minute shows how evenly the work was spread."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from messages.generation.replica_load import ReplicaLoad
from ops.bench.balance.gateway_model import GatewayModel
from ops.bench.balance.replica_model import ModelledWork, ReplicaModel
from ops.bench.balance.virtual_time import VirtualTime

MINUTE_S = 60.0
_N_PREFIXES, _ZIPF = 200, 1.1
_SLOWNESS = 3.0


class BalanceLoad(StrEnum):
    """What arrives."""

    UNIFORM = "uniform"  # prompts of 64 to 1,024 tokens that share nothing
    ZIPF = "zipf"  # 200 prefixes of 512 to 2,048 tokens by Zipf's law (1.1), each prompt with 32 to 256 more
    SLOW = "slow"  # as uniform, and the last replica takes three times as long from the second minute on


@dataclass(frozen=True)
class BalanceCase:
    """What one run is about. `rate`: requests a second."""

    balancing: str
    load: BalanceLoad
    rate: float
    n_replicas: int = 3
    n_gateways: int = 2
    n_minutes: int = 5
    seed: int = 1


@dataclass
class BalanceResult:
    """What a run gave, in virtual time or of a real server."""

    imbalances: list[float] = field(default_factory=list)  # by minute, without the first one
    first_token_s: list[float] = field(default_factory=list)
    cached_share: float = 0.0  # of the tokens of prompts
    n_moved: int = 0
    n_openings: int = 0
    n_given_up: int = 0


def imbalance(done: Collection[float]) -> float:
    """The largest distance of a replica's computed tokens from the mean, as a share of it."""
    mean = sum(done) / len(done)
    return max(abs(one - mean) for one in done) / mean


def run(case: BalanceCase) -> BalanceResult:
    """Run a case in virtual time."""
    time, chance = VirtualTime(), random.Random(case.seed)
    gateways: dict[str, GatewayModel] = {}
    replicas: dict[str, ReplicaModel] = {}

    def report(name: str, load: ReplicaLoad) -> None:
        for gateway in gateways.values():
            gateway.dispatcher.loads.note(name, load)

    def first(work: ModelledWork) -> None:
        gateways[work.gateway].on_first(work)

    def end(work: ModelledWork) -> None:
        gateways[work.gateway].on_end(work)

    for number in range(case.n_replicas):
        name = f"scheduler/{number}"
        replicas[name] = ReplicaModel(time, first, end, lambda load, name=name: report(name, load))
    for index in range(case.n_gateways):
        gateways[f"gateway/{index}"] = GatewayModel(index, case.balancing, time, replicas, case.n_gateways)
    n_prompt = _Arrivals(case, chance, time, list(gateways.values())).begin()
    result, before = BalanceResult(), dict.fromkeys(replicas, 0)
    for minute in range(case.n_minutes):
        if minute == 1 and case.load is BalanceLoad.SLOW:
            replicas[f"scheduler/{case.n_replicas - 1}"].slowness = _SLOWNESS
        time.run((minute + 1) * MINUTE_S)
        done = {name: model.computed_tokens - before[name] for name, model in replicas.items()}
        before = {name: model.computed_tokens for name, model in replicas.items()}
        if minute:
            result.imbalances.append(imbalance(done.values()))
    for gateway in gateways.values():
        result.first_token_s += gateway.first_token_s
        result.n_moved += gateway.dispatcher.moves.n_moved
        result.n_given_up += gateway.n_given_up
        result.n_openings += sum(gateway.dispatcher.balancer.health.n_openings(name) for name in replicas)
    result.cached_share = sum(model.cached_tokens for model in replicas.values()) / max(n_prompt[0], 1)
    return result


class BalancePrompts:
    """The prompts of a load, which share nothing or one of 200 prefixes, and the lengths of their answers."""

    def __init__(self, load: BalanceLoad, chance: random.Random) -> None:
        self._chance = chance
        self._weights = [1 / (rank + 1) ** _ZIPF for rank in range(_N_PREFIXES)]
        self._prefixes = [self._tokens(chance.randint(512, 2048)) for _ in self._weights] if load is BalanceLoad.ZIPF else []

    def prompt(self) -> np.ndarray:
        """The token ids of the next prompt, int32."""
        return np.concatenate(list(self._parts()))

    def n_output(self) -> int:
        """How many tokens its answer has."""
        return self._chance.randint(32, 256)

    def _parts(self) -> Iterator[np.ndarray]:
        if self._prefixes:
            yield self._chance.choices(self._prefixes, self._weights)[0]
            yield self._tokens(self._chance.randint(32, 256))
        else:
            yield self._tokens(self._chance.randint(64, 1024))

    def _tokens(self, n: int) -> np.ndarray:
        return np.frombuffer(self._chance.randbytes(4 * n), dtype="<i4") & 0x7FFF


class _Arrivals:
    """Requests at random times, at random gateways."""

    def __init__(self, case: BalanceCase, chance: random.Random, time: VirtualTime, gateways: list[GatewayModel]) -> None:
        self._case, self._chance, self._time, self._gateways = case, chance, time, gateways
        self._n_prompt = [0]
        self._prompts = BalancePrompts(case.load, chance)

    def begin(self) -> list[int]:
        """Let them arrive. The only element of the list counts the tokens of prompts."""
        self._next()
        return self._n_prompt

    def _next(self) -> None:
        prompt = self._prompts.prompt()
        self._n_prompt[0] += len(prompt)
        self._chance.choice(self._gateways).ask(prompt, self._prompts.n_output())
        self._time.later(self._chance.expovariate(self._case.rate), self._next)
