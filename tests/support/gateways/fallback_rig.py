"""A gateway with a main and a fallback model, whose answers to a prompt differ, and a scripted scheduler of each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from actors.gateway.settings import OtherModel
from gpu_workers.hash_chain import hash_chain_tokens
from messages.generation.sequences import Submit
from messages.ids import REPLICAS_OF_A_MODEL, actor_name
from tests.support.gateway.fake_scheduler import FakeScheduler
from tests.support.gateway.gateway_rig import Rig, rig

BIG, SMALL = "big", "small"
SMALL_VOCABULARY = 1000
SMALL_LENGTH = 64
MAIN_SCHEDULER, FALLBACK_SCHEDULER = (actor_name("scheduler", model * REPLICAS_OF_A_MODEL) for model in range(2))
OTHER = OtherModel(name=SMALL, folder="hash-chain", max_length=SMALL_LENGTH)


def small_oracle(prompt: list[int], n: int, seed: int = 0) -> list[int]:
    """The fallback model's `n` tokens after a prompt. Seed 0: greedy."""
    return hash_chain_tokens(prompt, n, seed, SMALL_VOCABULARY)


def _small_chain(submit: Submit, n: int) -> list[int]:
    return small_oracle(submit.tokens.tolist(), n, submit.sampling.seed if submit.sampling.temperature > 0 else 0)


async def add_fallback(r: Rig, incarnation: int = 1, **options: bool) -> FakeScheduler:
    """Start a scheduler of the fallback model and its worker."""
    scheduler = await r.add_scheduler(FALLBACK_SCHEDULER, incarnation, **options)
    scheduler.output_of = _small_chain
    return scheduler


@asynccontextmanager
async def fallback_rig(*, has_main: bool = False, **settings: Any) -> AsyncIterator[Rig]:
    """A gateway whose fallback model is ready, and whose main model is if `has_main`."""
    fields = {"model_name": BIG, "other_models": [OTHER], "fallback_after_s": 0.0, **settings}
    async with rig(with_scheduler=has_main, **fields) as r:
        await add_fallback(r)
        yield r
