"""Runs a drill: a reference without faults, then round after round of streams with one fault in the middle of each."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import httpx

from messages.errors import ConfigError
from supervisor.drill.faults import PlannedFault, check_present, inflict, is_whole
from supervisor.drill.figures import Round, rows_of
from supervisor.drill.load import EmbeddingLoad, RoundLoad, TextLoad, harms_embedder, vectors_for
from supervisor.drill.readers import Follow, following
from supervisor.drill.step_time import step_ms_between, steps_so_far
from supervisor.drill.streams import DrillStream, StreamRequest, bearer, find_model, follow, prompts_of, trusted

NO_FAULT = "no fault"
_PROBE_EVERY_S = 0.05
_FIRST_TEXT_S = 120.0
_SETTLE_S = 1.0  # between two rounds
_IN_MINUTES_S = 120.0  # from here on
_ANEW = {"Cache-Control": "no-store"}  # a server that keeps answers computes them anew
_WHOLE_S = 60.0  # how long a round waits until what the last one killed is back


@dataclass(frozen=True)
class DrillPlan:
    """What a drill does. `run_dir`: of our own server, for faults that name a role."""

    url: str
    model: str  # "": the first one that the server names
    faults: tuple[PlannedFault, ...]
    rounds: int  # of each fault
    streams: int
    prompt_words: int
    max_tokens: int
    deadline_s: float  # of one stream
    seed: int
    run_dir: Path
    ignores_end: bool = True
    api_key: str = ""
    tls_ca: Path | None = None  # who has signed the server's certificate; None: whom the system trusts
    readers: int = 1  # processes that read the streams


@dataclass(frozen=True)
class Reference:
    """What the server answers without a fault. answers: the right one to each prompt whose answer was the same twice; empty
    where that holds for less than half of them, because then chance decides, and another text says nothing of a fault."""

    answers: dict[str, str]
    n_unsteady: int  # prompts whose greedy answer was not the same twice
    calm: Round  # the second time, as a round without a fault: its pauses are what the load alone does


@dataclass(frozen=True)
class DrillResult:
    """The rounds, the calm one first. `stopped`: faults that could not be inflicted in every round, and why."""

    model: str
    rounds: Sequence[Round]
    reference: Reference
    stopped: Sequence[str]
    step_ms: float = 0.0  # of a step of the server in the calm runs, as its metrics say; 0: they do not


def headers_of(plan: DrillPlan) -> dict[str, str]:
    """What every request of the drill says."""
    return _ANEW | bearer(plan.api_key)


async def run_drill(plan: DrillPlan, say: Callable[[str], None]) -> DrillResult:
    """Carry out the plan; `say` gets a line for each round.

    Raises: ConfigError when the server or a target is not there, or the first fault cannot be inflicted even once.
    """
    limits = httpx.Limits(max_connections=plan.streams + 8, max_keepalive_connections=0)
    timeout = httpx.Timeout(plan.deadline_s, connect=5.0)
    opened = httpx.AsyncClient(timeout=timeout, limits=limits, headers=headers_of(plan), verify=trusted(plan.tls_ca))
    with following(plan.readers) as follow:
        async with opened as client:
            return await _carry_out(client, plan, follow, say)


async def _carry_out(client: httpx.AsyncClient, plan: DrillPlan, follow: Follow, say: Callable[[str], None]) -> DrillResult:
    options = await _options(client, plan)
    for fault in plan.faults:
        await asyncio.to_thread(check_present, fault, plan.run_dir)
    say(f"reference: {plan.streams} streams of {plan.max_tokens} tokens without a fault, twice")
    prompts = prompts_of(plan.streams, plan.prompt_words, plan.seed)
    began_s = time.monotonic()
    before = await steps_so_far(client, plan.url)
    reference = await reference_of(options, prompts, follow)
    step_ms = step_ms_between(before, await steps_so_far(client, plan.url))
    say(f"reference: {len(prompts)} answers, {reference.n_unsteady} of them not the same twice{_compared(reference)}")
    say(length_of(plan, (time.monotonic() - began_s) / 2))
    vectors = await vectors_for(client, options, plan.faults, plan.streams)

    def load_for(fault: PlannedFault) -> RoundLoad:
        return EmbeddingLoad(client, options, vectors) if harms_embedder(fault) else TextLoad(client, options, prompts, follow)

    rounds, stopped = await _harm(plan, reference, _Drill(plan, load_for), say)
    return DrillResult(options.model, rounds, reference, stopped, step_ms)


async def _harm(
    plan: DrillPlan, reference: Reference, drill: _Drill, say: Callable[[str], None]
) -> tuple[list[Round], list[str]]:
    """Returns the rounds, and why some are missing. Raises: ConfigError when the first fault cannot be inflicted even once."""
    rounds, stopped = [reference.calm], list[str]()
    for fault in plan.faults:
        try:
            for number in range(plan.rounds):
                rounds.append(await drill.round(fault))
                say(f"{fault.text} {number + 1}/{plan.rounds}: {_result(rounds[-1], reference)}")
        except ConfigError as error:
            if len(rounds) == 1:
                raise
            stopped.append(f"{fault.text}: {error}")
            say(f"{fault.text} ends here: {error}")
        except asyncio.CancelledError:  # SIGINT or SIGTERM: what was measured is reported
            stopped.append(f"{fault.text}: interrupted")
            break
    return rounds, stopped


def _compared(reference: Reference) -> str:
    return "" if reference.answers else "; so many differ by chance that no text is compared, only whether it is whole"


def length_of(plan: DrillPlan, streams_s: float) -> str:
    """How many rounds follow and how long they take at least, in one line. `streams_s`: of the streams without a fault."""
    n_rounds = plan.rounds * len(plan.faults)
    least_s = plan.rounds * sum(streams_s + fault.pause_s + _SETTLE_S for fault in plan.faults)
    rounds = "1 round follows, which takes" if n_rounds == 1 else f"{n_rounds} rounds follow, which take"
    length = f"{least_s:.0f} s" if least_s < _IN_MINUTES_S else f"{least_s / 60:.0f} minutes"
    shorter = "--rounds 1 and --max-tokens 64 would shorten it, and " if least_s >= _IN_MINUTES_S else ""
    return f"{rounds} at least {length}; {shorter}Ctrl-C ends the drill and reports what was measured until then"


def _result(one: Round, reference: Reference) -> str:
    (row,) = rows_of([one], reference.answers)
    waited = "never answered" if one.answered_after_s == math.inf else f"answered after {one.answered_after_s:.2f} s"
    pauses = f" pauses {row.pause_p50_ms:.0f} ms (p50), {row.pause_max_ms:.0f} ms (max);" if row.has_pauses else ""
    return f"{one.harmed}; {row.lost} of {row.streams} streams lost, {row.wrong} wrong;{pauses} a new request was {waited}"


def _explained(error: Exception) -> str:
    """The text of an error, with the flag that may help."""
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        return f"status {status}{'; --api-key shows it a key' if status == HTTPStatus.UNAUTHORIZED else ''}"
    return f"{error}{'; --tls-ca names who has signed it' if 'CERTIFICATE_VERIFY_FAILED' in str(error) else ''}"


async def _options(client: httpx.AsyncClient, plan: DrillPlan) -> StreamRequest:
    try:
        model = plan.model or await find_model(client, plan.url)
    except (httpx.HTTPError, ValueError) as error:
        raise ConfigError(f"url: expected an OpenAI-compatible server at {plan.url}, got {_explained(error)}") from None
    sizes = (plan.prompt_words, plan.max_tokens, plan.deadline_s)
    return StreamRequest(plan.url, model, *sizes, plan.ignores_end, plan.api_key, _ANEW, plan.tls_ca)


async def reference_of(options: StreamRequest, prompts: list[str], follow: Follow = follow) -> Reference:
    """Ask for the answer to each prompt twice, with all streams at once. Raises: ConfigError if one fails."""
    first, second = [await _stream_all(options, prompts, follow) for _ in range(2)]
    failed = [stream.error for stream in (*first, *second) if stream.error]
    if failed:
        raise ConfigError(f"reference: expected every stream to end without a fault, got {failed[0]}")
    steady = {a.prompt: a.text for a, b in zip(first, second, strict=True) if a.text == b.text}
    n_unsteady = len(prompts) - len(steady)
    all_began_s = max((stream.arrivals_s[0] for stream in second if stream.arrivals_s), default=0.0)
    return Reference(steady if n_unsteady <= len(steady) else {}, n_unsteady, Round(NO_FAULT, "", all_began_s, 0.0, second))


async def _stream_all(options: StreamRequest, prompts: list[str], follow: Follow) -> list[DrillStream]:
    streams = [DrillStream(prompt) for prompt in prompts]
    await asyncio.gather(*(follow(options, stream) for stream in streams))
    return streams


class _Drill:
    def __init__(self, plan: DrillPlan, load_for: Callable[[PlannedFault], RoundLoad]) -> None:
        self._plan, self._load_for = plan, load_for
        self._chance = random.Random(plan.seed)
        self._spared: set[str] = set()  # children that have had a spare

    async def round(self, fault: PlannedFault) -> Round:
        """Start all streams, harm the server when each has text, and follow the streams to their ends."""
        await self._wait_whole()
        load = self._load_for(fault)
        streams, work = load.streams, load.begin()
        began_s = time.monotonic()
        while not all(stream.pieces or stream.error for stream in streams) and time.monotonic() < began_s + _FIRST_TEXT_S:
            await asyncio.sleep(_PROBE_EVERY_S)
        await asyncio.sleep(self._chance.uniform(0.0, 0.25 * (time.monotonic() - began_s)))
        try:
            harmed = await inflict(fault, self._plan.run_dir, self._chance)
        except ConfigError:
            load.end()
            await asyncio.gather(*work)
            raise
        at_s = time.monotonic()
        continued_s = at_s + fault.pause_s if fault.pause_s else math.inf
        answered_after_s = await self._wait_answer(load, at_s)
        await asyncio.sleep(at_s + fault.pause_s - time.monotonic())
        load.end()
        await asyncio.gather(*work)
        await asyncio.sleep(_SETTLE_S)
        return Round(fault.text, harmed, at_s, answered_after_s, streams, continued_s=continued_s)

    async def _wait_whole(self) -> None:
        end_s = time.monotonic() + _WHOLE_S
        while not await asyncio.to_thread(is_whole, self._plan.run_dir, self._spared) and time.monotonic() < end_s:
            await asyncio.sleep(_PROBE_EVERY_S)

    async def _wait_answer(self, load: RoundLoad, at_s: float) -> float:
        """Seconds from the fault until a new request is answered; math.inf after the deadline of a stream."""
        while time.monotonic() < at_s + self._plan.deadline_s:
            if await load.is_answering():
                return time.monotonic() - at_s
            await asyncio.sleep(_PROBE_EVERY_S)
        return math.inf
