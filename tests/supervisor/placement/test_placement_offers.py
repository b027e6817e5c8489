"""What a refused placement offers instead works; what cannot be deterministic is refused before a rank starts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.runner.memory_estimate import GIB
from messages.errors import ConfigError
from supervisor.placement.hardware import Gpu, Host
from supervisor.placement.placement import Placement, PlacementRefused, PlacementRequest
from supervisor.placement.placement_offers import check_deterministic, plan_or_offer

H200, T4 = Gpu("0", "NVIDIA H200", 1, (9, 0)), Gpu("1", "Tesla T4", 1, (7, 5))


@pytest.mark.parametrize(
    ("placement", "attention", "said"),
    [
        (Placement("cpu", (), 1, 1, "float16", deterministic=True), "auto", r"worker\.dtype: .* got float16"),
        (Placement("cuda", (H200,), 1, 1, "float16", deterministic=True), "torch", r'worker\.attention: .* got "torch"'),
        (Placement("cuda", (H200, T4), 1, 2, "float16", deterministic=True), "auto", "gpus: .* NVIDIA H200 and Tesla T4"),
    ],
)
def test_what_is_refused(placement: Placement, attention: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_deterministic(placement, attention)


def test_the_rest_is_accepted() -> None:
    """None of these raises."""
    check_deterministic(Placement("cpu", (), 1, 1, "float16"), "torch")
    check_deterministic(Placement("cuda", (H200,), 1, 1, "float16", deterministic=True), "auto")
    check_deterministic(Placement("cpu", (), 2, 1, "bfloat16", deterministic=True), "auto")


LLAMA_8B = ModelConfig("llama", 32, 4096, 32, 8, 128, 14_336, 128_256, 131_072)
LLAMA_70B = ModelConfig("llama", 80, 8192, 64, 8, 128, 28_672, 128_256, 131_072)


def host(n: int, gib: float) -> Host:
    """A machine with n equal devices."""
    return Host(tuple(Gpu(str(index), "some GPU", int(gib * GIB), (9, 0)) for index in range(n)), 64 * GIB)


@pytest.mark.parametrize(
    ("there", "model", "asked", "said"),
    [
        (host(4, 22.5), LLAMA_70B, PlacementRequest(tp=2, replicas=3), "got 4 (32.9 GiB of weights a GPU in bfloat16)"),
        (
            host(4, 80.0),
            LLAMA_70B,
            PlacementRequest(tp=4, replicas=3),
            "(4 GPUs for 3 replicas), got 4; it works with --replicas 1",
        ),
        (host(4, 80.0), LLAMA_70B, PlacementRequest(replicas=8), "(the number of GPUs), got 8; it works with --replicas 2"),
        (host(2, 80.0), LLAMA_70B, PlacementRequest(tp=1, replicas=3), "got 3; it works without --tp and --replicas"),
        (host(4, 80.0), LLAMA_8B, PlacementRequest(replicas=8), "(the number of GPUs), got 8"),  # four replicas work
        (host(4, 80.0), LLAMA_8B, PlacementRequest(gpus=2, tp=4), "tp: expected at most 2 (2 GPUs), got 4"),
    ],
)
def test_a_refusal_names_what_works(there: Host, model: ModelConfig, asked: PlacementRequest, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_or_offer(there, model, asked)
    assert str(caught.value).endswith(said)


@given(
    st.builds(host, st.integers(1, 8), st.sampled_from([10.0, 22.5, 80.0])),
    st.sampled_from([LLAMA_8B, LLAMA_70B]),
    st.builds(PlacementRequest, st.none() | st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)),
)
def test_what_works_is_accepted(there: Host, model: ModelConfig, asked: PlacementRequest) -> None:
    try:
        plan_or_offer(there, model, asked)
    except ConfigError as error:
        offer = offer_of(error, there, asked)
        if offer is not None:
            plan_or_offer(there, model, offer)
        else:
            with pytest.raises(ConfigError, match=f"^{re.escape(str(error))}$"):  # this host does not hold the model
                plan_or_offer(there, model, PlacementRequest())


def offer_of(error: ConfigError, there: Host, asked: PlacementRequest) -> PlacementRequest | None:
    """The request that a refusal offers; None if it offers none: nothing fits this host."""
    _, found, words = str(error).partition("; it works ")
    if not found and isinstance(error, PlacementRefused):
        lacks_gpus = error.key == "gpus" and error.offer > len(there.gpus)
        return None if lacks_gpus else replace(asked, **{error.key: error.offer})
    given_up = {"gpus": None, "tp": 0, "replicas": 0}
    changed = {key: int(value) if value else given_up[key] for key, value in re.findall(r"--(\w+) ?(\d*)", words)}
    return replace(asked, **changed) if changed else None
