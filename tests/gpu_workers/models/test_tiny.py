"""Each architecture with tiny random weights against the classes of `transformers`, whole prompts and paged in pieces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
from tests.support.workers.paged_loop import PagedLoop, PagedSequence, build_step

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "vocab_size": 101,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES = {
    "llama": ("LlamaConfig", {"head_dim": 8}),
    "llama3": ("LlamaConfig", {"head_dim": 8, "rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True}),
    "llama_linear": (
        "LlamaConfig",
        {"head_dim": 16, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
    ),
    "llama_bias": ("LlamaConfig", {"head_dim": 8, "attention_bias": True}),
    "mistral": ("MistralConfig", {"head_dim": 8, "sliding_window": None}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": False}),
    "qwen3": ("Qwen3Config", {"head_dim": 16, "use_sliding_window": False}),
    "phi3": ("Phi3Config", {"pad_token_id": 0, "sliding_window": None}),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_transformers(case: str, tmp_path: Path) -> None:
    name, options = CASES[case]
    torch.manual_seed(0)
    reference = transformers.AutoModelForCausalLM.from_config(getattr(transformers, name)(**SIZES, **options)).eval()
    with torch.no_grad():
        for parameter in reference.parameters():  # norms and biases too, else their use is not tested
            parameter.add_(torch.randn_like(parameter) * 0.05)
    reference.save_pretrained(tmp_path)
    model = build_model(read_model_config(tmp_path), tmp_path, WeightPlacement(torch.device("cpu"), torch.float32))
    tokens = torch.randint(0, 101, (3, 70), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(tokens).logits
    loop = PagedLoop(model)
    rows = [PagedSequence(row.tolist()) for row in tokens]
    for counts in ((70, 20, 1), (0, 30, 1), (0, 1, 3), (0, 3, 3), (0, 16, 62)):
        rows_now = [(row, count) for row, count in zip(rows, counts, strict=True) if count]
        logits = loop.run(rows_now)
        ordered = sorted(rows_now, key=lambda row: row[1] != 1)
        for (row, _), got in zip(ordered, logits, strict=True):
            index = next(i for i, one in enumerate(rows) if one is row)
            torch.testing.assert_close(got, expected[index, row.computed - 1], atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_may_sample_nothing(dtype: torch.dtype) -> None:
    config = LlamaConfig("llama", 2, 48, 6, 2, 8, 80, 101, 512)
    model = build_model(config, Path(), WeightPlacement(torch.device("cpu"), dtype), load_format="random")
    loop, whole = PagedLoop(model), PagedLoop(model)
    sequence = PagedSequence(list(range(40)), pages=[3, 9, 5])
    for count in (1, 25):  # a chunk of one token and a longer one
        step = replace(build_step([(sequence, count)]), sample_index=torch.empty(0, dtype=torch.int64))
        logits = model.logits(model.forward(step, loop.kv))
        assert (logits.shape, logits.dtype) == ((0, 101), dtype)
        sequence.computed += count
    rest = loop.run([(sequence, 14)])
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(rest, whole.run([(PagedSequence(list(range(40))), 40)]), atol=tolerance, rtol=tolerance)


def test_unknown_models_and_formats_are_refused() -> None:
    config = ModelConfig("hash_chain", 1, 8, 1, 1, 8, 8, 8, 8)
    placement = WeightPlacement(torch.device("cpu"), torch.float32)
    with pytest.raises(ValueError, match=r"model_type: expected one of llama, .*, got 'hash_chain'"):
        build_model(config, Path(), placement)
    with pytest.raises(ValueError, match="load_format: expected one of safetensors, random, got 'npz'"):
        build_model(LlamaConfig("llama", 1, 8, 1, 1, 8, 8, 8, 8), Path(), placement, load_format="npz")
