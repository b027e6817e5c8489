"""What a refused placement offers instead works; what cannot be deterministic is refused before a rank starts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.runner.memory_estimate import GIB
from gpu_workers.settings import KvDtype, Quantization, WorkerSettings
from messages.errors import ConfigError
from supervisor.placement.hardware import Gpu, Host
from supervisor.placement.placement import Placement, PlacementRequest
from supervisor.placement.placement_offers import (
    check_deterministic,
    check_kv_dtype,
    check_quantization,
    plan_or_offer,
)
from supervisor.placement.refusal import PlacementRefused
from tests.support.supervisor.any_host import HOSTS, MODELS

H200, T4 = Gpu("0", "NVIDIA H200", 1, (9, 0)), Gpu("1", "Tesla T4", 1, (7, 5))
A100, L40 = Gpu("2", "NVIDIA A100", 1, (8, 0)), Gpu("3", "NVIDIA L40", 1, (8, 9))


def on_gpus(quantization: Quantization, gpu: Gpu = H200, dtype: str = "bfloat16", *, deterministic: bool = False) -> Placement:
    return Placement("cuda", (H200, gpu), 1, 2, dtype, deterministic=deterministic, quantization=quantization)


def on_cores(quantization: Quantization, dtype: str) -> Placement:
    return Placement("cpu", (), 1, 1, dtype, quantization=quantization)


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


def test_which_devices_have_pages_of_8_bits() -> None:
    refused: list[tuple[Placement, KvDtype, str]] = [
        (on_gpus("none", T4), "int8", r'gpus: expected compute capability 8\.0 or more with "int8" pages, got Tesla T4 with 7'),
        (
            on_gpus("none", A100),
            "fp8",
            r'gpus: expected compute capability 8\.9 or more with "fp8" pages, got NVIDIA A100 with 8',
        ),
        (on_gpus("none", T4), "int4", r'gpus: expected compute capability 8\.0 or more with "int4" pages, got Tesla T4 with 7'),
        (
            on_cores("none", "bfloat16"),
            "fp8",
            r'worker\.kv_dtype: expected "auto", "int8" or "int4" on CPU cores, got "fp8"; .*GPUs',
        ),
    ]
    for placement, kv_dtype, said in refused:
        with pytest.raises(ConfigError, match=said):
            check_kv_dtype(placement, kv_dtype)
        check_kv_dtype(placement, "auto")
    check_kv_dtype(on_gpus("none"), "fp8")
    check_kv_dtype(on_gpus("none", A100), "int8")
    check_kv_dtype(on_gpus("none", L40, deterministic=True), "fp8")
    check_kv_dtype(on_cores("none", "bfloat16"), "int8")
    check_kv_dtype(on_cores("none", "bfloat16"), "int4")
    check_kv_dtype(on_gpus("none", A100, deterministic=True), "int4")


_ON_GPUS: tuple[KvDtype, ...] = ("auto", "fp8")


def test_twice_as_many_tokens_are_planned_with_small_floats() -> None:
    model = ModelConfig("llama", 32, 4096, 32, 8, 128, 14_336, 128_256, 1 << 22)
    rooms = [
        plan_or_offer(
            Host((replace(H200, memory_bytes=141 * 10**9),), 1 << 40),
            model,
            PlacementRequest(worker=WorkerSettings(kv_dtype=kv_dtype, n_slots=256), standby=False),
        ).room_tokens
        for kv_dtype in _ON_GPUS
    ]
    assert rooms[0] > 0
    assert rooms[1] == pytest.approx(rooms[0] * 256 / 130, rel=0.01), "a part of the memory is for widened keys and values"


@pytest.mark.parametrize(
    ("placement", "said"),
    [
        (on_gpus("int8"), r'worker\.quantization: expected "none" or "fp8" on GPUs, got "int8"; .*gpus = 0'),
        (on_gpus("fp8", T4), r'gpus: expected compute capability 9\.0 or more with "fp8" weights, got Tesla T4 with 7\.5'),
        (on_gpus("fp8", dtype="float16"), r'worker\.dtype: expected bfloat16 with worker\.quantization "fp8", got float16'),
        (on_gpus("fp8", deterministic=True), r'worker\.quantization: expected "none" with worker\.deterministic .* got "fp8"'),
        (on_cores("fp8", "bfloat16"), r'worker\.quantization: expected "none", "int8" or "int4" on CPU cores, got "fp8"'),
        (on_cores("int8", "float16"), r"worker\.dtype: expected float32 or bfloat16 with .* int8, got float16"),
    ],
)
def test_weights_that_a_device_cannot_multiply_are_refused(placement: Placement, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_quantization(placement)


def test_quantised_weights_have_a_device_each() -> None:
    """None of these raises."""
    for placement in (on_gpus("none"), on_gpus("fp8"), on_cores("none", "float16"), on_cores("int8", "bfloat16")):
        check_quantization(placement)


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


FITS = "expected a number that fits this host"


@pytest.mark.parametrize(
    ("there", "model", "asked", "said"),
    [
        (host(4, 22.5), LLAMA_70B, PlacementRequest(tp=2, replicas=3), "got 4 (32.9 GiB of weights a GPU in bfloat16)"),
        (
            host(4, 80.0),
            LLAMA_70B,
            PlacementRequest(tp=4, replicas=3),
            f"tp: {FITS} (4 GPUs for 3 replicas), got 4; it works with --gpus 4 --tp 4 --replicas 1",
        ),
        (
            host(4, 80.0),
            LLAMA_70B,
            PlacementRequest(replicas=8),
            f"replicas: {FITS} (4 GPUs), got 8; it works with --gpus 4 --tp 2 --replicas 2",
        ),
        (
            host(2, 80.0),
            LLAMA_70B,
            PlacementRequest(tp=1, replicas=3),
            f"replicas: {FITS} (2 GPUs), got 3; it works with --gpus 2 --tp 2 --replicas 1",
        ),
        (
            host(8, 80.0),
            LLAMA_70B,
            PlacementRequest(9, 3, 5),
            f"gpus: {FITS} (8 x some GPU), got 9; it works with --gpus 8 --tp 4 --replicas 2",
        ),
        (
            host(0, 0.0),
            LLAMA_8B,
            PlacementRequest(4, 3, 99),
            f"gpus: {FITS} (CPU cores; no GPU is visible here), got 4; it works with --gpus 0 --tp 3 --replicas 2",
        ),
        (
            host(8, 80.0),
            LLAMA_70B,
            PlacementRequest(tp=9),
            "tp: expected 2, 3, 4, 5, 6, 7 or 8 (the model has 8 KV heads and 64 heads), got 9",  # 1 does not hold it
        ),
        (host(4, 80.0), LLAMA_8B, PlacementRequest(replicas=8), "(the number of GPUs), got 8"),  # four replicas work
        (host(4, 80.0), LLAMA_8B, PlacementRequest(gpus=2, tp=4), "tp: expected at most 2 (2 GPUs), got 4"),
    ],
)
def test_a_refusal_names_what_works(there: Host, model: ModelConfig, asked: PlacementRequest, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_or_offer(there, model, asked)
    assert str(caught.value).endswith(said)


NUMBERS = st.just(0) | st.integers(1, 20) | st.sampled_from([64, 65, 1025, 10**9])


@given(
    HOSTS | st.just(host(0, 0.0)) | st.builds(host, st.integers(1, 8), st.sampled_from([10.0, 22.5, 80.0])),
    st.none() | MODELS | st.sampled_from([LLAMA_8B, LLAMA_70B]),
    st.builds(PlacementRequest, st.none() | NUMBERS, NUMBERS, NUMBERS),
)
def test_all_that_a_refusal_offers_is_accepted(there: Host, model: ModelConfig | None, asked: PlacementRequest) -> None:
    error = refusal(there, model, asked)
    if error is None or str(error) == str(refusal(there, model, PlacementRequest())):  # this host does not hold the model
        return
    for offer in offers_of(error, asked):
        assert refusal(there, model, offer) is None, (str(error), offer)


def refusal(there: Host, model: ModelConfig | None, asked: PlacementRequest) -> ConfigError | None:
    """The error for this request; None if it is accepted."""
    try:
        plan_or_offer(there, model, asked)
    except ConfigError as error:
        return error
    return None


def offers_of(error: ConfigError, asked: PlacementRequest) -> list[PlacementRequest]:
    """The requests that a refusal offers; none if it offers none."""
    _, found, words = str(error).partition("; it works with ")
    if found:
        numbers = {key: int(value) for key, value in re.findall(r"--(\w+) (\d+)", words)}
        assert list(numbers) == ["gpus", "tp", "replicas"]
        return [replace(asked, **numbers)]
    return [replace(asked, **{error.key: offer}) for offer in error.offers] if isinstance(error, PlacementRefused) else []
