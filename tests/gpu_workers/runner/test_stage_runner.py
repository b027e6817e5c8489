"""Stages of a pipeline: the tokens of one rank come out, however plans follow each other through the stages."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.engine import PlanRefused
from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.sampling import Sampling
from messages.steps import Result
from tests.support.workers.sampling_kinds import KINDS, alone, prompt_of
from tests.support.workers.small_scheduler import GREEDY, Row, Running, SmallScheduler
from tests.support.workers.staged_engine import LaunchedStages, StagedEngine, staged
from tests.support.workers.tiny_model import load_runner, write_model

MODELS = {"two stages, tied head": (2, True), "three stages": (3, False)}
KIND_NAMES = list(KINDS)
N_OUTPUT = 8


@pytest.fixture(scope="module", params=MODELS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelRunner, StagedEngine]:
    n_stages, is_tied = MODELS[request.param]
    folder = write_model(tmp_path_factory.mktemp("tiny"), num_hidden_layers=3, tie_word_embeddings=is_tied)
    plain = load_runner(folder, "cpu")
    return plain, staged(folder, plain, n_stages)


class Pipelined:
    """Sends plans of any rows, with several in flight, and reads their results in order."""

    def __init__(self, engine: StagedEngine) -> None:
        self.engine, self.scheduler = engine, SmallScheduler(engine, seed=5)
        self._flying: list[LaunchedStages] = []

    def send(self, rows: list[Row], most_flying: int) -> None:
        self._flying.append(self.engine.launch(self.scheduler.write_plan(rows)))
        while len(self._flying) > most_flying:
            self.read()

    def read(self) -> None:
        self.scheduler.read(list(self.engine.collect(self._flying.pop(0))))

    def read_all(self) -> None:
        while self._flying:
            self.read()


def unfinished(sequence: Running) -> bool:
    return sequence.n_known - sequence.n_prompt < N_OUTPUT


def next_row(sequence: Running, most: int) -> Row:
    """The next tokens of a sequence that are known to be planned, at most so many."""
    return Row(sequence, min(most, sequence.n_known - sequence.n_computed))


@pytest.mark.slow
@given(data=st.data())
def test_any_order_of_plans_gives_the_tokens_of_one_rank(both: tuple[ModelRunner, StagedEngine], data: st.DataObject) -> None:
    """Plans take any of the sequences, ahead of the results of up to three others; slots are used again."""
    plain, engine = both
    pipelined = Pipelined(engine)
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    wanted = [(prompt_of(n, i), KINDS[KIND_NAMES[i % len(KINDS)]]) for i, n in enumerate(lengths)]
    waiting, running, done = list(wanted), list[Running](), list[Running]()
    while waiting or running:
        if waiting and (not running or data.draw(st.booleans())):
            running.append(pipelined.scheduler.add(*waiting.pop(0)))
        able = [s for s in running if unfinished(s)]
        chosen = data.draw(st.lists(st.sampled_from(able), unique_by=id, min_size=1)) if able else []
        if chosen:
            pipelined.send([next_row(s, data.draw(st.sampled_from([16, 1, 64]))) for s in chosen], data.draw(st.integers(0, 3)))
        else:
            pipelined.read_all()
        for s in [s for s in running if len(s.output) >= N_OUTPUT]:
            running.remove(s)
            pipelined.scheduler.drop(s)
            done.append(s)
    pipelined.read_all()
    outputs = {tuple(s.tokens) for s in done}
    assert outputs == {(*prompt, *alone(plain, prompt, sampling, N_OUTPUT)) for prompt, sampling in wanted}


def test_a_stage_computes_the_next_plan_of_other_sequences_before_the_result_of_the_last(
    both: tuple[ModelRunner, StagedEngine],
) -> None:
    """The last stage is given nothing: the first one goes on with other sequences, and waits only for tokens that it needs."""
    _, engine = both
    first = engine.runners[0]
    scheduler = SmallScheduler(engine)
    a, b = scheduler.add(prompt_of(20)), scheduler.add(prompt_of(9, 1))
    plans = [scheduler.write_plan([Row(a, 20)]), scheduler.write_plan([Row(b, 9)])]
    for plan in plans:
        (empty,) = first.collect(first.launch(plan))
        assert (len(empty.slots), len(empty.ids)) == (0, 0)
    for runner in engine.runners[1:]:
        results: list[Result] = [result for plan in plans for result in runner.collect(runner.launch(plan))]
    scheduler.read(results)  # pyright: ignore[reportPossiblyUnboundVariable]
    scheduler.decode([a, b], 3)
    assert len(a.output) == len(b.output) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_verified_by_the_last_stage(both: tuple[ModelRunner, StagedEngine], kind: str) -> None:
    plain, engine = both
    expected = alone(plain, prompt_of(45), KINDS[kind], 20)
    scheduler = SmallScheduler(engine)
    s, other = scheduler.add(prompt_of(45), KINDS[kind]), scheduler.add(prompt_of(8))
    scheduler.prefill(s, other)
    for n_right in (2, 0, 1, 3):
        done = len(s.output)
        wrong = (expected[done + n_right] + 1) % 211
        scheduler.run([Row(other), Row(s, drafts=[*expected[done : done + n_right], wrong, 5])])
        scheduler.run([Row(s), Row(other)])
    assert s.output == expected[: len(s.output)]
    assert len(s.output) == 15


def test_log_probabilities_are_those_of_one_rank(both: tuple[ModelRunner, StagedEngine]) -> None:
    results: list[Result] = []
    for engine in both:
        scheduler = SmallScheduler(engine)
        s = scheduler.add(prompt_of(30), Sampling(temperature=0.0, logprobs=2))
        s.prompt_logprobs = 2
        results += scheduler.run([Row(s, 30)])
    plain, of_stages = results
    assert plain.logprobs is not None
    assert of_stages.logprobs is not None
    torch.testing.assert_close(plain.logprobs.top, of_stages.logprobs.top)
    assert [part.owner for part in plain.prompts] == [part.owner for part in of_stages.prompts]
    torch.testing.assert_close(plain.prompts[0].logprobs.chosen, of_stages.prompts[0].logprobs.chosen)


def test_every_stage_refuses_a_wrong_plan_alike_and_goes_on(both: tuple[ModelRunner, StagedEngine]) -> None:
    plain, engine = both
    scheduler = SmallScheduler(engine)
    s = scheduler.add(prompt_of(45))
    scheduler.prefill(s)
    with pytest.raises(PlanRefused, match="n_steps: expected at most 1, got 2"):
        list(engine.collect(engine.launch(scheduler.write_plan([Row(s)], n_steps=2))))
    scheduler = SmallScheduler(engine, epoch=2)
    s = scheduler.add(prompt_of(45))
    scheduler.prefill(s)
    scheduler.decode([s], 5)
    assert s.output == alone(plain, prompt_of(45), GREEDY, 6)


def test_each_stage_holds_its_own_layers_only(both: tuple[ModelRunner, StagedEngine]) -> None:
    plain, engine = both
    n_layers = [runner._model.kv_shape.n_layers for runner in engine.runners]
    assert sum(n_layers) == plain._model.kv_shape.n_layers == 3
    assert sum(runner._kv.shape.bytes_per_page for runner in engine.runners) == plain._kv.shape.bytes_per_page
