"""A tiny random checkpoint and a model runner for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.llama.weights import tensor_shapes
from gpu_workers.runner.model_loading import load_model_runner
from gpu_workers.runner.model_runner import ModelRunner
from gpu_workers.settings import DeviceKind, DtypeChoice, KvDtype, Quantization, UrgentStream, WorkerSettings

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 211,
    "max_position_embeddings": 512,
}


# random weights of this shape split over up to eight ranks
EIGHT_HEADS = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 4096,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}


def write_model(folder: Path, **keys: int | bool) -> Path:
    """A tiny checkpoint, the same on every device. Weights are large enough to keep logits well apart. keys: of its config."""
    (folder / "config.json").write_text(json.dumps({**TINY, **keys}))
    generator = torch.Generator().manual_seed(0)
    config = read_model_config(folder)
    assert isinstance(config, LlamaConfig)
    weights = {
        name: torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=generator) * 0.2
        for name, shape in tensor_shapes(config).items()
    }
    save_file(weights, folder / "model.safetensors")
    return folder


def runners_on_both(folder: Path) -> tuple[ModelRunner, ModelRunner]:
    """A runner on a CUDA device and one on the CPU. Skips the test where there is no such device."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return load_runner(folder, "cuda"), load_runner(folder, "cpu")


def load_runner(
    folder: Path,
    device: DeviceKind,
    dtype: DtypeChoice = "float32",
    quantization: Quantization = "none",
    kv_dtype: KvDtype = "auto",
    *,
    urgent_stream: UrgentStream = "auto",
) -> ModelRunner:
    """A runner with room for a dozen short sequences."""
    settings = WorkerSettings(
        model_folder=str(folder),
        device=device,
        dtype=dtype,
        quantization=quantization,
        kv_dtype=kv_dtype,
        n_slots=12,
        max_step_tokens=256,
        kv_memory_bytes=8 << 20,
        max_lease_steps=4,
        urgent_stream=urgent_stream,
        threads=1,
    )
    phases: list[str] = []
    loaded = load_model_runner(settings, folder, lambda phase, fraction: phases.append(phase))
    assert {"weights", "memory", "warm up"} <= set(phases)
    return loaded


def reference_logprobs(folder: Path, prompt: list[int]) -> torch.Tensor:
    """The log probabilities of each next token of a prompt by `transformers`: [len(prompt) - 1, vocabulary] float32."""
    import transformers  # takes seconds

    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([prompt])).logits[0, :-1], -1)
