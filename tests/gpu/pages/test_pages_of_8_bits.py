"""A runner with compressed pages on a CUDA device: the laws of plain pages, and answers near those of plain pages."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import FP8
from gpu_workers.runner.model_runner import ModelRunner
from tests.gpu_workers.runner.test_runner import (  # noqa: F401  (the tests of the CPU, collected here with this module's runner)
    test_chunked_prefill_equals_whole,
    test_lease_equals_single_steps,
    test_mixed_batch_equals_alone,
    test_shared_prefix_equals_own,
    test_two_in_flight_equals_one,
)
from tests.support.workers.copied_pages import copied_and_own
from tests.support.workers.sampling_kinds import KINDS, alone, check_drafts, prompt_of
from tests.support.workers.tiny_model import load_runner, write_model

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=["fp8", "int8", "int4"])
def runners(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelRunner, ModelRunner]:
    """With compressed pages, and with plain ones."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs a CUDA device of compute capability 8.9")
    folder = write_model(tmp_path_factory.mktemp("tiny"), **({"head_dim": 32} if request.param == "int4" else {}))
    return load_runner(folder, "cuda", kv_dtype=request.param), load_runner(folder, "cuda")


@pytest.fixture(scope="module")
def runner(runners: tuple[ModelRunner, ModelRunner]) -> ModelRunner:
    return runners[0]


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"random"}))
@pytest.mark.parametrize("n_right", [0, 1, 3])
def test_drafts_change_nothing(runner: ModelRunner, kind: str, n_right: int) -> None:
    """Drafts are verified by another kernel, whose last bits differ. A draw from all tokens can lie on the border of two of
    them, which these bits decide: on an H200 one of 24 did with pages of 4 bits."""
    check_drafts(runner, kind, n_right)


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_change_nothing(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert runner._graphs is not None
    with_graphs = [alone(runner, prompt_of(n), KINDS[kind], 40) for n in (1, 30, 61)]
    monkeypatch.setattr(runner, "_graphs", None)
    assert [alone(runner, prompt_of(n), KINDS[kind], 40) for n in (1, 30, 61)] == with_graphs


def test_most_first_tokens_are_those_of_plain_pages(runners: tuple[ModelRunner, ModelRunner]) -> None:
    """Logits of the tiny model lie far apart. Small integers are less near: of the real model they keep 92 % of next tokens."""
    first = [[alone(runner, prompt_of(n), KINDS["greedy"], 1) for n in range(1, 61)] for runner in runners]
    n_equal = sum(one == other for one, other in zip(*first, strict=True))
    assert n_equal >= (30 if "int4" in runners[0].capacity().device else 48), n_equal


def test_it_says_what_it_computes_with(runner: ModelRunner) -> None:
    assert any(f"{kind} keys and values" in runner.capacity().device for kind in ("fp8", "int8", "int4"))


@pytest.mark.parametrize("n_copied", [1, 7, 15])
def test_a_copied_page_is_as_good_as_an_own_one(runner: ModelRunner, n_copied: int) -> None:
    """A last place of a key may decide between two 8-bit numbers, and these between two tokens that are equally probable."""
    n_equal = sum(copied[:10] == own[:10] for copied, own in copied_and_own(runner, n_copied))
    assert n_equal >= 3


def test_copies_of_pages_have_their_scales() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    kv = KvPages.allocate(KvShape(3, 2, 64, FP8), 9, "cuda")
    words = kv.storage.view(9, -1).view(torch.int64)
    words.random_()
    expected = words.cpu()
    expected[[7, 2, 8]] = expected[[1, 1, 4]]
    kv.copy(np.array([1, 1, 4], np.int32), np.array([7, 2, 8], np.int32))
    assert words.cpu().equal(expected)
