"""The real SmolLM2 against `transformers` on the same float32 weights: logits, and greedy tokens however steps are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
from tests.support.workers.paged_loop import PagedLoop, PagedSequence

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

QUESTIONS = ("What is the capital of France?", "Write a function that adds two numbers.", "Hi", "Name three primary colors.")
N_TOKENS = 24


@pytest.fixture(scope="module")
def prompts(smollm2_folder: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    form = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    return [tokenizer.encode(form.format(question)).ids for question in QUESTIONS]


@pytest.fixture(scope="module")
def reference(smollm2_folder: Path) -> Any:
    return transformers.LlamaForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def model(smollm2_folder: Path) -> Model:
    placement = WeightPlacement(torch.device("cpu"), torch.float32)
    return build_model(read_model_config(smollm2_folder), smollm2_folder, placement)


@pytest.fixture(scope="module")
def expected(reference: Any, prompts: list[list[int]]) -> list[list[int]]:
    reference.generation_config.eos_token_id = None  # go on behind the end
    made = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": N_TOKENS, "do_sample": False}
        made.append(reference.generate(ids, **options)[0].tolist())
    return [tokens[len(prompt) :] for tokens, prompt in zip(made, prompts, strict=True)]


def test_logits_are_close(model: Model, reference: Any, prompts: list[list[int]]) -> None:
    loop = PagedLoop(model)
    for prompt in prompts:
        with torch.no_grad():
            wanted = reference(torch.tensor([prompt])).logits[0, -1]
        torch.testing.assert_close(loop.run([(PagedSequence(prompt), len(prompt))])[0], wanted, atol=2e-3, rtol=1e-4)


def test_greedy_tokens_alone(model: Model, prompts: list[list[int]], expected: list[list[int]]) -> None:
    assert [PagedLoop(model).greedy([prompt], N_TOKENS, 512)[0] for prompt in prompts[:2]] == expected[:2]


@pytest.mark.parametrize("chunk_tokens", [7, 64])
def test_greedy_tokens_in_mixed_steps(
    model: Model, prompts: list[list[int]], expected: list[list[int]], chunk_tokens: int
) -> None:
    assert PagedLoop(model).greedy(prompts, N_TOKENS, chunk_tokens) == expected


def test_text_is_sensible(smollm2_folder: Path, expected: list[list[int]]) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    assert tokenizer.decode(expected[0]).startswith("The capital of France is Paris.")
