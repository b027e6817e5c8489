"""Answers that match a grammar on a CUDA device: the same laws as on a CPU, and the same tokens."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.sampling import Sampling
from messages.steps import Result
from tests.gpu_workers.grammar.test_grammar_runs import (  # noqa: F401  (the tests of the CPU, collected with this runner)
    test_an_answer_that_moves_to_another_slot_goes_on,
    test_answers_of_many_seeds_match_and_differ,
    test_drafts_change_nothing,
    test_every_answer_matches_its_grammar,
    test_neighbours_with_and_without_grammars_change_nothing,
    test_steps_after_the_end_bring_nothing_but_end_tokens,
)
from tests.support.workers.grammar.grammar_runs import OBJECT, WORDS, answer, constrained
from tests.support.workers.grammar.tiny_tokenizer import END, tiny_tokenizer, write_tokenizer
from tests.support.workers.sampling_kinds import KINDS, alone, prompt_of
from tests.support.workers.small_scheduler import Row, SmallScheduler
from tests.support.workers.tiny_model import runners_on_both, write_model

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelRunner, ModelRunner]:
    folder = write_model(tmp_path_factory.mktemp("tiny"))
    write_tokenizer(folder)
    return runners_on_both(folder)


@pytest.fixture(scope="module")
def runner(runners: tuple[ModelRunner, ModelRunner]) -> ModelRunner:
    return runners[0]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tiny_tokenizer()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grammar", [WORDS, OBJECT], ids=["expression", "schema"])
def test_device_gives_the_tokens_of_the_cpu(runners: tuple[ModelRunner, ModelRunner], kind: str, grammar: str) -> None:
    device, cpu = (answer(runner, grammar, KINDS[kind]) for runner in runners)
    assert device == cpu


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grammar", [WORDS, OBJECT], ids=["expression", "schema"])
def test_graphs_change_nothing(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch, kind: str, grammar: str) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(ModelRunner, "_run_step")  # all steps run in graphs
        in_graphs = answer(runner, grammar, KINDS[kind])
    monkeypatch.setattr(runner, "_graphs", None)
    assert answer(runner, grammar, KINDS[kind]) == in_graphs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [5, END])
def test_drafts_run_in_graphs(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch, kind: str, wrong: int) -> None:
    monkeypatch.delattr(ModelRunner, "_run_step")
    test_drafts_change_nothing(runner, kind, wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_in_flight_change_nothing(runner: ModelRunner, kind: str) -> None:
    """The next steps are launched before the host knows the tokens of the last one: their samples wait for masks."""
    scheduler = SmallScheduler(runner)
    s, free = constrained(scheduler, WORDS, KINDS[kind]), scheduler.add(prompt_of(8), KINDS[kind])
    scheduler.prefill(s, free)
    for _ in range(2):
        launched = [runner.launch(scheduler.write_plan([Row(s), Row(free)])) for _ in range(runner.max_in_flight)]
        for steps in launched:
            scheduler.read(list(runner.collect(steps)))
            runner.look_ahead()
    assert s.output == answer(runner, WORDS, KINDS[kind])[:5]
    assert free.output == alone(runner, prompt_of(8), KINDS[kind], 5)


def test_a_full_batch_gives_the_tokens_of_each_alone(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with and without grammars, with every kind of sampling, alone in their graphs; some of them have drafts."""
    monkeypatch.delattr(ModelRunner, "_run_step")
    kinds = [*KINDS.values(), Sampling(temperature=1.2, min_p=0.1, seed=4), Sampling(temperature=0.7, top_k=3, seed=5)]
    expected = [(answer(runner, WORDS, kind)[:9], alone(runner, prompt_of(45), kind, 9)) for kind in kinds]
    scheduler = SmallScheduler(runner, seed=8)
    rows = [(constrained(scheduler, WORDS, kind), scheduler.add(prompt_of(45), kind)) for kind in kinds]
    everyone = [*(free for _, free in rows), *(s for s, _ in rows)][::-1]
    scheduler.prefill(*everyone[:4])
    scheduler.run([*(Row(s) for s in everyone[:4]), *(Row(s, 45) for s in everyone[4:8])])
    scheduler.run([*(Row(s) for s in everyone[:8]), *(Row(s, 45) for s in everyone[8:])])
    for _ in range(3):
        scheduler.decode(everyone, 1)
        scheduler.run([Row(s, drafts=[5, 7]) if index % 3 == 0 else Row(s) for index, s in enumerate(everyone)])
    for (s, free), (constrained_tokens, free_tokens) in zip(rows, expected, strict=True):
        n, n_free = (min(9, len(each.output)) for each in (s, free))
        assert (s.output[:n], free.output[:n_free]) == (constrained_tokens[:n], free_tokens[:n_free])


def test_log_probabilities_are_the_same_in_graphs_and_outside(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = Sampling(temperature=1.0, seed=9, logprobs=4)

    def results() -> list[Result]:
        scheduler = SmallScheduler(runner)
        s, free = constrained(scheduler, WORDS, sampling), scheduler.add(prompt_of(8), sampling)
        scheduler.prefill(s, free)
        return [result for _ in range(5) for result in scheduler.run([Row(free), Row(s)])]

    in_graphs = results()
    monkeypatch.setattr(runner, "_graphs", None)
    for one, other in zip(in_graphs, results(), strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.logprobs is not None
        assert other.logprobs is not None
        assert one.logprobs.chosen == pytest.approx(other.logprobs.chosen, abs=1e-4)
