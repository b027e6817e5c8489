"""A tiny Gemma 3 with random weights against `transformers`: prompts longer than the window, whole, in pieces and shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_workers.layers.shard import rank_parameters, shard_model
from gpu_workers.model_store.config_keys import ModelConfigError
from gpu_workers.models.architectures import parse_model_config, read_model_config
from gpu_workers.models.gemma3.config import Gemma3Config
from gpu_workers.models.gemma3.weights import tensor_shapes
from gpu_workers.models.model import Model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
from messages.steps import PAGE_TOKENS
from tests.support.workers.paged_loop import PagedLoop, PagedSequence

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")

WINDOW, VOCABULARY = 24, 101
N_TOKENS = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers, the third of them global; every number differs from its default."""
    torch.manual_seed(0)
    config = transformers.Gemma3TextConfig(
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=80,
        vocab_size=VOCABULARY,
        max_position_embeddings=512,
        initializer_range=0.2,
        query_pre_attn_scalar=24,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        },
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # norms too, else their use is not tested
            parameter.add_(torch.randn_like(parameter) * 0.1)
    path = tmp_path_factory.mktemp("gemma3")
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return build_model(read_model_config(folder), folder, WeightPlacement(torch.device("cpu"), torch.float32))


def prompt_of(n: int, seed: int = 1) -> list[int]:
    return torch.randint(3, VOCABULARY, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def greedy(reference: Any, prompt: list[int]) -> list[int]:
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(N_TOKENS):
            tokens.append(int(reference(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("chunk", [1, 7, 16, 40, 100])
def test_logits_equal_transformers_however_the_prompt_is_cut(model: Model, reference: Any, chunk: int) -> None:
    prompt = prompt_of(100)
    with torch.no_grad():
        expected = reference(torch.tensor([prompt])).logits[0]
    loop, sequence = PagedLoop(model), PagedSequence(prompt)
    while sequence.computed < len(prompt):
        logits = loop.run([(sequence, min(chunk, len(prompt) - sequence.computed))])
        torch.testing.assert_close(logits[0], expected[sequence.computed - 1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("chunk_tokens", [13, 512])
def test_greedy_tokens_equal_transformers_in_mixed_steps(model: Model, reference: Any, chunk_tokens: int) -> None:
    prompts = [prompt_of(n, seed=n) for n in (5, WINDOW, 60, 90)]
    assert PagedLoop(model).greedy(prompts, N_TOKENS, chunk_tokens) == [greedy(reference, prompt) for prompt in prompts]


def test_a_shared_prefix_equals_an_own_one(model: Model, reference: Any) -> None:
    prompt, n_shared = prompt_of(70), 3 * PAGE_TOKENS
    loop, first = PagedLoop(model), PagedSequence(prompt)
    loop.run([(first, len(prompt))])
    other = PagedSequence(prompt[:n_shared] + prompt_of(30, seed=9), n_shared, first.pages[: n_shared // PAGE_TOKENS])
    with torch.no_grad():
        expected = reference(torch.tensor([other.tokens])).logits[0, -1]
    torch.testing.assert_close(loop.run([(other, 30)])[0], expected, atol=1e-4, rtol=1e-4)


def test_half_precision_is_near(folder: Path, reference: Any) -> None:
    model = build_model(read_model_config(folder), folder, WeightPlacement(torch.device("cpu"), torch.bfloat16))
    prompt = prompt_of(60)
    with torch.no_grad():
        expected = reference(torch.tensor([prompt])).logits[0, -1]
    got = PagedLoop(model).run([(PagedSequence(prompt), len(prompt))])[0].float()
    assert (got - expected).norm() < 0.05 * expected.norm()


def test_both_forms_of_the_config_say_the_same(folder: Path) -> None:
    new = read_model_config(folder)
    assert isinstance(new, Gemma3Config)
    assert (new.attention_window, new.is_sliding) == (WINDOW, (True, True, False, True))
    old = parse_model_config(
        {
            "model_type": "gemma3_text",
            "num_hidden_layers": 12,
            "sliding_window_pattern": 4,
            "rope_theta": 1e5,
            "rope_local_base_freq": 500.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        }
    )
    assert isinstance(old, Gemma3Config)
    assert (old.rope, old.sliding_rope) == (new.rope, new.sliding_rope)
    assert old.is_sliding == (True, True, True, False) * 3
    assert (old.head_dim, old.window, old.tied_embeddings) == (256, 4096, True)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"hidden_activation": "silu"}, "hidden_activation: expected gelu_pytorch_tanh, got 'silu'"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping: expected null or false, got 30.0"),
        ({"layer_types": ["sliding_attention"]}, "layer_types: expected 26 of"),
    ],
)
def test_refusals_name_the_key(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelConfigError, match="^" + text):
        parse_model_config({"model_type": "gemma3_text"} | keys)


def test_the_parameters_are_those_of_the_checkpoint(folder: Path) -> None:
    config = read_model_config(folder)
    assert isinstance(config, Gemma3Config)
    n_parameters = sum(torch.Size(shape).numel() for shape in tensor_shapes(config).values())
    assert rank_parameters(config, shard_model(config, 0, 1)) == n_parameters
