"""The model runner on a CUDA device: the same laws as on a CPU, the same tokens as a CPU, and graphs that change nothing."""

from __future__ import annotations

import pytest
import torch

from gpu_workers.runner.model_runner import ModelRunner
from tests.gpu_workers.runner.test_rules_of_runner import (  # noqa: F401
    test_a_draft_that_breaks_a_rule_is_rejected,
    test_rules_hold_in_single_steps_leases_and_after_a_re_entry,
    test_rules_outside_of_the_vocabulary_are_refused,
)
from tests.gpu_workers.runner.test_runner import (  # noqa: F401  (the tests of the CPU, collected here with this module's runner)
    test_a_banned_token_outside_of_the_vocabulary_is_refused,
    test_a_copied_page_equals_an_own_one,
    test_banned_tokens_come_after_min_tokens_only,
    test_bans_are_the_same_in_leases_and_with_drafts,
    test_chunked_prefill_equals_whole,
    test_drafts_change_nothing,
    test_lease_equals_single_steps,
    test_logprobs_are_of_the_raw_distribution,
    test_logprobs_of_drafts_stand_beside_their_tokens,
    test_mixed_batch_equals_alone,
    test_output_is_not_all_the_same,
    test_refused_plan_leaves_no_trace,
    test_shared_prefix_equals_own,
    test_the_greedy_choice_is_the_best_that_is_not_banned,
    test_two_in_flight_equals_one,
)
from tests.gpu_workers.sampling.test_prompt_logprobs import (  # noqa: F401
    test_a_slot_forgets_what_its_last_sequence_wanted,
    test_chunks_of_a_prompt_give_those_of_transformers,
    test_pieces_of_logits_change_nothing,
    test_the_sampled_tokens_are_those_without,
)
from tests.support.workers.ruled_sequences import RULES, ruled, rules_against
from tests.support.workers.sampling_kinds import KINDS, alone, prompt_of
from tests.support.workers.small_scheduler import Row, SmallScheduler
from tests.support.workers.tiny_model import reference_logprobs, runners_on_both, write_model

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelRunner, ModelRunner]:
    return runners_on_both(write_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    return reference_logprobs(write_model(tmp_path_factory.mktemp("reference")), prompt_of(45))


@pytest.fixture(scope="module")
def runner(runners: tuple[ModelRunner, ModelRunner]) -> ModelRunner:
    return runners[0]


@pytest.mark.parametrize("kind", KINDS)
def test_device_gives_the_tokens_of_the_cpu(runners: tuple[ModelRunner, ModelRunner], kind: str) -> None:
    on_device, on_cpu = runners
    for n in (1, 17, 60):
        assert alone(on_device, prompt_of(n), KINDS[kind], 40) == alone(on_cpu, prompt_of(n), KINDS[kind], 40)


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_change_nothing(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert runner._graphs is not None
    with_graphs = [alone(runner, prompt_of(n), KINDS[kind], 40) for n in (1, 30, 61)]
    monkeypatch.setattr(runner, "_graphs", None)
    assert [alone(runner, prompt_of(n), KINDS[kind], 40) for n in (1, 30, 61)] == with_graphs


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_rules_are_the_same_in_graphs_and_outside(
    runner: ModelRunner, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    rules = rules_against(alone(runner, prompt_of(45), KINDS[kind], 30), name)

    def output() -> list[int]:
        scheduler = SmallScheduler(runner)
        s, other = ruled(scheduler, kind, rules), scheduler.add(prompt_of(8), KINDS[kind])
        scheduler.prefill(s, other)
        scheduler.decode([s, other], 20)
        scheduler.run([Row(s), Row(other)], n_steps=4)
        return s.output + other.output

    in_graphs = output()
    monkeypatch.setattr(runner, "_graphs", None)
    assert output() == in_graphs


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_and_every_kind_of_row_run_in_graphs(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.delattr(ModelRunner, "_run_step")
    assert len(alone(runner, prompt_of(30), KINDS[kind], 10)) == 10


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_run_in_graphs(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.delattr(ModelRunner, "_run_step")
    test_drafts_change_nothing(runner, kind, n_right=3)
