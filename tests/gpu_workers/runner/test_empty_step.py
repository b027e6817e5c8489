"""What is measured before pages are promised: the greatest step that a gang may be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.model import Model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.empty_step import even_rows, fullest_rows, run_empty_step
from gpu_workers.runner.model_loading import build_model
from messages.steps import PAGE_TOKENS

CPU = torch.device("cpu")


def _tiny_model() -> Model:
    return build_model(
        LlamaConfig("llama", 2, 48, 6, 2, 8, 80, 101, 64), Path(), WeightPlacement(CPU, torch.float32), load_format="random"
    )


@pytest.mark.parametrize(
    ("step_tokens", "max_length", "rows"),
    [(64, 100, [64]), (64, 64, [64]), (100, 40, [40, 40, 20]), (81, 40, [40, 40]), (1, 8, [1]), (3, 1, [1, 1, 1])],
)
def test_the_greatest_step_is_full(step_tokens: int, max_length: int, rows: list[int]) -> None:
    assert fullest_rows(step_tokens, max_length) == rows


@pytest.mark.parametrize(
    ("n_tokens", "max_length", "rows"), [(64, 100, [64]), (1281, 1024, [641, 640]), (1025, 1024, [513, 512]), (9, 3, [3, 3, 3])]
)
def test_no_row_has_positions_that_a_model_lacks(n_tokens: int, max_length: int, rows: list[int]) -> None:
    assert even_rows(n_tokens, max_length) == rows


def test_rows_of_the_greatest_step_stand_apart() -> None:
    model = _tiny_model()
    logits = []
    for rows in ([20], [40, 40, 20], [1, 1, 20], [1, 1, 1], [1]):
        kv = KvPages.allocate(model.kv_shape, len(rows) * -(-max(rows) // PAGE_TOKENS), CPU)
        logits.append(run_empty_step(model, kv, rows))
    torch.testing.assert_close(logits[0], logits[1])
    torch.testing.assert_close(logits[0], logits[2])
    torch.testing.assert_close(logits[3], logits[4])


def test_a_prompt_that_its_pages_do_not_hold_is_refused() -> None:
    model = _tiny_model()
    with pytest.raises(ValueError, match="a prompt of 40 tokens does not fit 2 of the 8 pages"):
        run_empty_step(model, KvPages.allocate(model.kv_shape, 8, CPU), [1, 1, 40])
