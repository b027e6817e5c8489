"""Random schemas on random weights: every answer is a document that matches its schema, with and without forced tokens."""

from __future__ import annotations

import json

import jsonschema
import pytest
from tokenizers import Tokenizer

from actors.gateway.text.grammars import compile_grammar
from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.grammar import Grammar, GrammarKind
from messages.generation.sampling import Sampling
from messages.steps import Result
from tests.support.answers.random_schemas import random_schema
from tests.support.depth import DEPTH
from tests.support.workers.grammar.grammar_runs import constrained, grammar_runner
from tests.support.workers.grammar.tiny_tokenizer import END, tiny_tokenizer
from tests.support.workers.small_scheduler import Row, Running, SmallScheduler

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
N_SCHEMAS = 100 * DEPTH
SIDE_BY_SIDE = 10
LONGEST = 460  # tokens of an answer: the context of the tiny model is 512


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    return grammar_runner(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tiny_tokenizer()


def grammar_of(seed: int) -> str:
    wanted = Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(random_schema(seed)))
    return compile_grammar(wanted).text


def forced_after(results: list[Result]) -> dict[int, list[int]]:
    """Forced tokens by slot."""
    report = results[-1].grammars
    if report is None:
        return {}
    assert not report.failures
    ids = iter(report.ids.tolist())
    rows = zip(report.slots.tolist(), report.counts.tolist(), strict=True)
    return {slot: [next(ids) for _ in range(count)] for slot, count in rows}


def answers(runner: ModelRunner, seeds: range, with_drafts: bool) -> dict[int, Running]:
    """One answer for each seed, all side by side."""
    scheduler = SmallScheduler(runner, seed=seeds[0])
    running = {seed: constrained(scheduler, grammar_of(seed), Sampling(temperature=1.0, seed=seed)) for seed in seeds}
    results: list[Result] = []
    for s in running.values():
        results = scheduler.run([Row(s, 45)])
    forced: dict[int, list[int]] = {}
    while open_ones := [s for s in running.values() if END not in s.output and len(s.output) < LONGEST]:
        rows = [Row(s, drafts=forced.get(s.slot, [])[:8] if with_drafts else []) for s in open_ones]
        results = scheduler.run(rows)
        forced = forced_after(results)
    return running


@pytest.mark.parametrize("with_drafts", [True, False])
def test_every_answer_matches_its_schema(runner: ModelRunner, tokenizer: Tokenizer, with_drafts: bool) -> None:
    n_seeds = N_SCHEMAS if with_drafts else N_SCHEMAS // 10
    for first in range(0, n_seeds, SIDE_BY_SIDE):
        seeds = range(first, min(first + SIDE_BY_SIDE, n_seeds))
        for seed, s in answers(runner, seeds, with_drafts).items():
            assert END in s.output, f"schema {seed}: not at its end after {len(s.output)} tokens"
            text = tokenizer.decode(s.output[: s.output.index(END)])
            jsonschema.Draft202012Validator(random_schema(seed)).validate(json.loads(text))
