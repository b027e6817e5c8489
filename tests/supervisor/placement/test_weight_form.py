"""What weights become where the operator leaves that to the server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_workers.model_store.config_keys import ConfigKeys
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.model_store.quantized.reader import read_quantization
from gpu_workers.models.resolve import read_config
from gpu_workers.settings import WorkerSettings
from supervisor.placement.hardware import Gpu, Host
from supervisor.placement.placement import PlacementRequest
from supervisor.placement.plan import plan_placement
from supervisor.placement.weight_form import choose_form
from tests.support.quantized.writer import FORMATS

SMOLLM2 = read_config("smollm2")
assert SMOLLM2 is not None
FLOATS = replace(SMOLLM2, stored_as="F16")
HOST = Host((), 64 << 30, has_exact_products=True, has_int8_dot=True)
AUTO = WorkerSettings(quantization="auto")
H200 = Gpu("0", "NVIDIA H200", 150_000_000_000, (9, 0))


def test_a_file_of_4_bits_keeps_its_numbers_and_others_get_8_bits() -> None:
    assert SMOLLM2 is not None
    assert SMOLLM2.stored_as == "Q4_1"
    assert choose_form(HOST, SMOLLM2, AUTO, is_on_cpu=True).quantization == "int4"
    for stored_as in ("", "Q4_0", "Q8_0", "F16"):
        model = replace(SMOLLM2, stored_as=stored_as)
        assert choose_form(HOST, model, AUTO, is_on_cpu=True).quantization == "int8"


@pytest.mark.parametrize(
    ("host", "worker", "is_on_cpu"),
    [
        (replace(HOST, has_int8_dot=False), AUTO, True),
        (HOST, WorkerSettings(dtype="float32", quantization="auto"), True),
        (HOST, WorkerSettings(dtype="bfloat16", quantization="auto"), True),
        (HOST, WorkerSettings(quantization="none"), True),
        (HOST, AUTO, False),
    ],
)
def test_floats_stay_where_they_are_asked_for_or_nothing_is_faster(host: Host, worker: WorkerSettings, is_on_cpu: bool) -> None:
    form = choose_form(host, FLOATS, worker, is_on_cpu=is_on_cpu)
    assert (form.quantization, form.reason) == ("none", "")


def test_integers_of_a_file_are_kept_by_default_where_they_can_be_multiplied_as_they_are() -> None:
    assert SMOLLM2 is not None
    for stored_as in ("Q4_1", "Q8_0"):
        for worker in (WorkerSettings(), WorkerSettings(dtype="float32")):
            form = choose_form(HOST, replace(SMOLLM2, stored_as=stored_as), worker, is_on_cpu=True)
            assert (form.quantization, form.reason) == ("exact", f"the file's own numbers ({stored_as}), nothing is rounded")
    old = choose_form(replace(HOST, has_exact_products=False), SMOLLM2, WorkerSettings(), is_on_cpu=True)
    assert (old.quantization, old.reason) == (
        "none",
        "this processor has neither AVX-512 nor AVX2, or kernels cannot be compiled here",
    )


@pytest.mark.parametrize(
    ("model", "worker", "is_on_cpu"),
    [
        (None, WorkerSettings(), True),
        (replace(SMOLLM2, stored_as="Q4_K_M"), WorkerSettings(), True),
        (FLOATS, WorkerSettings(), True),
        (SMOLLM2, WorkerSettings(dtype="bfloat16"), True),
        (SMOLLM2, WorkerSettings(load_format="random"), True),
        (SMOLLM2, WorkerSettings(), False),
    ],
)
def test_floats_stay_by_default_elsewhere(model: ModelConfig | None, worker: WorkerSettings, is_on_cpu: bool) -> None:
    form = choose_form(HOST, model, worker, is_on_cpu=is_on_cpu)
    assert (form.quantization, form.reason) == ("none", "")


def test_what_is_asked_for_is_not_changed() -> None:
    form = choose_form(HOST, SMOLLM2, WorkerSettings(quantization="int8"), is_on_cpu=True)
    assert (form.quantization, form.reason) == ("int8", "")


def test_the_plan_says_what_was_chosen_and_why() -> None:
    plan = plan_placement(HOST, FLOATS, PlacementRequest(standby=False, worker=AUTO))
    assert plan.quantization == "int8"
    assert plan.text().endswith("GiB, weights int8 (fastest on this processor)")
    assert plan.summary() == "1 replica x tp 1 on CPU cores, float32, int8 weights"
    plain = plan_placement(HOST, FLOATS, PlacementRequest(standby=False))
    assert plan.weight_bytes < 0.5 * plain.weight_bytes, "the estimate is that of the weights that will be loaded"


def test_the_plan_of_stored_integers_counts_them() -> None:
    plan = plan_placement(HOST, SMOLLM2, PlacementRequest(standby=False))
    assert (plan.quantization, plan.quantization_of(WorkerSettings())) == ("exact", "exact")
    assert plan.summary() == "1 replica x tp 1 on CPU cores, float32, exact weights"
    floats = plan_placement(HOST, SMOLLM2, PlacementRequest(standby=False, worker=WorkerSettings(quantization="none")))
    assert plan.weight_bytes < 0.6 * floats.weight_bytes


def test_gpus_keep_floats() -> None:
    plan = plan_placement(Host((H200,), 64 << 30, has_int8_dot=True), FLOATS, PlacementRequest(worker=AUTO))
    assert (plan.device, plan.quantization, plan.quantization_reason) == ("cuda", "none", "")


def quantised(kind: str) -> ModelConfig:
    """A model whose files have the weights in a form of `FORMATS`."""
    form = read_quantization(ConfigKeys({"quantization_config": FORMATS[kind].config}))
    return replace(FLOATS, stored_as="", quantized=form)


@pytest.mark.parametrize(
    ("kind", "by_default", "by_auto"),
    [
        ("int8 rows", "exact", "int8"), ("packed", "exact", "int4"), ("awq", "exact", "int4"), ("gptq 8", "exact", "int8"),
        ("gptq v2 shuffled", "none", "int8"), ("fp8 rows", "none", "int8"), ("deepseek", "none", "int8"),
    ],
)  # fmt: skip
def test_integers_of_a_quantised_checkpoint_are_kept_on_cores(kind: str, by_default: str, by_auto: str) -> None:
    model = quantised(kind)
    forms = [choose_form(HOST, model, worker, is_on_cpu=True) for worker in (WorkerSettings(), AUTO)]
    assert [form.quantization for form in forms] == [by_default, by_auto]
    assert model.quantized is not None
    if by_default == "exact":
        name = f"{model.quantized.numbers.value} of {model.quantized.method}"
        assert forms[0].reason == f"the file's own numbers ({name}), nothing is rounded"


@pytest.mark.parametrize(
    ("kind", "by_default", "by_auto"),
    [
        ("fp8 rows", "fp8", "fp8"), ("fp8 tensor", "fp8", "fp8"), ("autofp8", "fp8", "fp8"), ("deepseek", "none", "fp8"),
        ("int8 rows", "none", "none"), ("awq", "none", "none"),
    ],
)  # fmt: skip
def test_floats_of_8_bits_are_kept_on_gpus(kind: str, by_default: str, by_auto: str) -> None:
    for worker, expected in ((WorkerSettings(), by_default), (AUTO, by_auto)):
        plan = plan_placement(Host((H200,), 64 << 30), quantised(kind), PlacementRequest(worker=worker))
        assert plan.quantization == expected
        assert (plan.quantization_reason != "") == (expected == "fp8" or kind == "deepseek")
    halves = plan_placement(Host((H200,), 64 << 30), quantised("fp8 rows"), PlacementRequest())
    whole = plan_placement(Host((H200,), 64 << 30), FLOATS, PlacementRequest())
    assert halves.weight_bytes < 0.75 * whole.weight_bytes, "a third of this model is its table"


def test_floats_of_8_bits_become_wider_where_nothing_multiplies_them() -> None:
    old = replace(H200, name="NVIDIA A100", capability=(8, 0))
    form = choose_form(Host((old,), 64 << 30), quantised("fp8 rows"), WorkerSettings(), is_on_cpu=False)
    assert (form.quantization, form.reason) == (
        "none",
        "fp8 (compressed-tensors) needs GPUs of compute capability 9.0 or more",
    )
    for worker in (WorkerSettings(dtype="float16"), WorkerSettings(deterministic=True), WorkerSettings(load_format="random")):
        assert choose_form(Host((H200,), 64 << 30), quantised("fp8 rows"), worker, is_on_cpu=False).quantization == "none"


def test_the_hash_chain_has_no_weights() -> None:
    assert plan_placement(HOST, None, PlacementRequest(worker=AUTO)).quantization == "none"
