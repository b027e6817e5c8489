"""Which back ends a model gets on which device."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from structlog.testing import capture_logs

from gpu_workers.cpu.kernels.machine import can_attend
from gpu_workers.layers.attention import TorchAttention
from gpu_workers.layers.shard import shard_model
from gpu_workers.model_store.rope import Rope
from gpu_workers.models.gemma3.config import Gemma3Config
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner import backend
from gpu_workers.runner.backend import AttentionChoice, choose_backend, chooses_triton
from messages.errors import ConfigError

LLAMA = LlamaConfig("llama", 2, 128, 4, 2, 64, 96, 101, 512)
ODD = replace(LLAMA, head_dim=80)
GEMMA3 = Gemma3Config(
    "gemma3_text", 2, 128, 4, 2, 64, 96, 101, 512,
    window=64, is_sliding=(True, False), query_scalar=64.0, rope=Rope(), sliding_rope=Rope(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "choice", "is_triton", "reason"),
    [
        (LLAMA, "auto", True, None),
        (LLAMA, "triton", True, None),
        (LLAMA, "torch", False, None),
        (ODD, "torch", False, None),
        (ODD, "auto", False, "head_dim: the Triton kernels expect one of (16, 32, 64, 128, 256), got 80"),
        (GEMMA3, "auto", False, "sliding_window: the Triton kernels have none, got 64"),
        (replace(GEMMA3, window=512), "auto", True, None),  # never shorter than a sequence
    ],
)
def test_attention_falls_back_to_torch_and_says_so(
    config: LlamaConfig, choice: AttentionChoice, is_triton: bool, reason: str | None
) -> None:
    with capture_logs() as logs:
        assert chooses_triton(config, choice) == is_triton
    assert [line["reason"] for line in logs] == ([] if reason is None else [reason])


def test_triton_that_is_asked_for_and_cannot_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^worker.attention: expected auto or torch for this model, got triton \(head_dim"):
        chooses_triton(ODD, "triton")


@pytest.mark.parametrize(
    ("device", "dtype", "has_kernels", "said"),
    [
        ("cuda", torch.bfloat16, True, "expected none or fp8 on a GPU, got int8"),
        ("cpu", torch.float16, True, "expected none, or float32 or bfloat16 .* got int8 with torch.float16"),
        (
            "cpu",
            torch.float32,
            False,
            "expected .* kernels can be compiled for; got int8 .* and no such processor",
        ),
    ],
)
def test_integers_that_nothing_multiplies_are_refused(
    device: str, dtype: torch.dtype, has_kernels: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_kernels:
        monkeypatch.setattr(backend, "this_machine", lambda: None)
    with pytest.raises(ConfigError, match=rf"^worker\.quantization: {said}"):
        choose_backend(WeightPlacement(torch.device(device), dtype, quantization="int8"), LLAMA, shard_model(LLAMA, 0, 1))


def test_a_cpu_attends_with_its_kernel_where_heads_are_whole_vectors() -> None:
    for config in (LLAMA, replace(LLAMA, head_dim=6)):
        chosen = choose_backend(WeightPlacement(torch.device("cpu"), torch.float32), config, shard_model(config, 0, 1))
        assert isinstance(chosen.attention, TorchAttention) != can_attend(torch.float32, config.head_dim)
