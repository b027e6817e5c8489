"""Reasoning with a limit: free before it, ended by its mark at it, the same however the work is cut and whoever goes on."""

from __future__ import annotations

import json

import msgspec
import pytest
from llguidance import LLMatcher

from actors.gateway.text.grammars import compile_grammar
from actors.gateway.text.reasoning_text import ReasoningMarks
from gpu_workers.grammar.thought import Thought, end_finder
from gpu_workers.grammar.vocabulary import GrammarVocabulary
from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.grammar import BoundedThinking, Grammar, GrammarKind
from tests.support.workers.grammar.grammar_runs import SCHEMA, constrained, run_to_end
from tests.support.workers.grammar.tiny_tokenizer import END, tiny_tokenizer, write_tokenizer
from tests.support.workers.sampling_kinds import KINDS, alone, prompt_of
from tests.support.workers.small_scheduler import Row, Running, SmallScheduler
from tests.support.workers.tiny_model import load_runner, write_model

_END_TEXT = "</think>"
_MARK = tiny_tokenizer().encode(_END_TEXT).ids
_LIMIT, _LONG = 6, 24
OPEN = BoundedThinking(_LIMIT, [], _MARK, _END_TEXT)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    folder = write_model(tmp_path_factory.mktemp("tiny"))
    write_tokenizer(folder)
    return load_runner(folder, "cpu")


def bounded(scheduler: SmallScheduler, thinking: BoundedThinking, kind: str, generated: list[int] | None = None) -> Running:
    return constrained(scheduler, thinking.as_grammar().text, KINDS[kind], generated)


def output(runner: ModelRunner, thinking: BoundedThinking, kind: str, n: int = _LONG) -> list[int]:
    scheduler = SmallScheduler(runner)
    s = bounded(scheduler, thinking, kind)
    scheduler.prefill(s)
    scheduler.decode([s], n - 1)
    return s.output


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_before_the_limit_are_those_without_one_then_the_mark_follows(runner: ModelRunner, kind: str) -> None:
    free = alone(runner, prompt_of(45), KINDS[kind], _LONG)
    ended = output(runner, OPEN, kind)
    assert ended[: _LIMIT + len(_MARK)] == free[:_LIMIT] + _MARK
    assert ended[_LIMIT + len(_MARK) :] != _MARK, "what follows is free again"
    begun = msgspec.structs.replace(OPEN, begin=free[:2])
    assert output(runner, begun, kind)[: _LIMIT + 2 + len(_MARK)] == free[: _LIMIT + 2] + _MARK
    assert output(runner, msgspec.structs.replace(OPEN, begin=[free[0], END]), kind) == free, "it does not think"
    assert output(runner, msgspec.structs.replace(OPEN, n_tokens=0), kind)[: len(_MARK)] == _MARK


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_goes_on_ends_the_reasoning_at_the_same_token(runner: ModelRunner, kind: str) -> None:
    expected = output(runner, OPEN, kind)
    for n in (1, _LIMIT, _LIMIT + 1, _LIMIT + len(_MARK) - 1, _LIMIT + len(_MARK)):
        scheduler = SmallScheduler(runner, seed=n)
        s = bounded(scheduler, OPEN, kind, expected[:n])
        scheduler.prefill(s)
        scheduler.decode([s], _LONG - n - 1)
        assert s.output == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_right", [1, 3, 30])
def test_drafts_around_the_limit_change_nothing(runner: ModelRunner, kind: str, n_right: int) -> None:
    expected = output(runner, OPEN, kind, _LONG + 8)
    scheduler = SmallScheduler(runner)
    s = bounded(scheduler, OPEN, kind)
    scheduler.prefill(s)
    while len(s.output) < _LONG - 8:
        done = len(s.output)
        (result,) = scheduler.run([Row(s, drafts=[*expected[done : done + n_right][: _LONG - done], 150, 7])])
        assert result.counts[0] >= min(n_right, _LONG - done)
    assert s.output[:_LONG] == expected[: len(s.output)][:_LONG]


def test_the_mark_is_told_as_forced_tokens(runner: ModelRunner) -> None:
    scheduler = SmallScheduler(runner)
    s = bounded(scheduler, OPEN, "random")
    (result,) = scheduler.run([Row(s, 45)])
    while len(s.output) < _LIMIT:
        assert result.grammars is None
        (result,) = scheduler.run([Row(s)])
    assert result.grammars is not None
    assert result.grammars.ids.tolist() == _MARK
    (result,) = scheduler.run([Row(s, drafts=_MARK)])
    assert result.counts.tolist() == [len(_MARK) + 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_grammar_holds_for_what_follows(runner: ModelRunner, kind: str) -> None:
    marks = ReasoningMarks("<think>", _END_TEXT, is_open=True)
    schema = compile_grammar(Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(SCHEMA)), marks).text
    scheduler = SmallScheduler(runner)
    ids = run_to_end(scheduler, bounded(scheduler, msgspec.structs.replace(OPEN, grammar=schema), kind))
    assert ids[_LIMIT : _LIMIT + len(_MARK)] == _MARK
    text = tiny_tokenizer().decode(ids[_LIMIT + len(_MARK) : -1])
    assert list(json.loads(text)) == ["ok", "n", "s"]


def test_reasoning_that_ends_by_itself_is_not_ended_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = write_tokenizer(folder)
    vocabulary = GrammarVocabulary(folder / "tokenizer.json", END + 1)

    def thought(thinking: BoundedThinking) -> Thought:
        return Thought(thinking, LLMatcher(vocabulary.tokenizer(), end_finder(thinking)))

    one = thought(OPEN)
    for token in [END - 1, *tokenizer.encode("a</think>bcdefgh").ids]:  # the first one is special, and no text
        one.consume(token)
    assert one.forced() == []
    assert one.forced_after([1] * 9) == {}
    cut = thought(OPEN)
    for token in tokenizer.encode("xy</th").ids:
        cut.consume(token)
    assert cut.forced() == _MARK, "a part of the mark is not the mark"
    for n, token in enumerate(_MARK, 1):
        cut.consume(token)
        assert cut.forced() == _MARK[n:]


def test_other_grammars_have_no_limit() -> None:
    assert BoundedThinking.read(OPEN.as_grammar().text) == OPEN
    assert BoundedThinking.read(LLMatcher.grammar_from_regex("a")) is None
    with pytest.raises(ValueError, match="grammars"):
        compile_grammar(OPEN.as_grammar())
