"""Grammars for the tiny model, and its answers to a prompt under each of them."""

from __future__ import annotations

import json
from pathlib import Path

from llguidance import LLMatcher

from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.sampling import Sampling
from tests.support.workers.grammar.tiny_tokenizer import END, write_tokenizer
from tests.support.workers.sampling_kinds import prompt_of
from tests.support.workers.small_scheduler import Running, SmallScheduler
from tests.support.workers.tiny_model import load_runner, write_model

REGEX = r"[a-c]{2,4}(-[0-9]{3}){2,5}!"
WORDS = LLMatcher.grammar_from_regex(REGEX)
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 22, 333]}, "s": {"type": "string", "maxLength": 4}},
    "required": ["ok", "n", "s"],
    "additionalProperties": False,
}
OBJECT = LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA), {"whitespace_flexible": False})
# After "ab" more items stand side by side than the library follows. Checks before the answer do not find that.
_ALTERNATIVES = range(2100)
TOO_COMPLEX = LLMatcher.grammar_from_lark(
    'start: "ab" (' + " | ".join(f"r{i}" for i in _ALTERNATIVES) + ")\n" + "\n".join(f"r{i}: /x{i}/" for i in _ALTERNATIVES)
)
LONGEST = 60


def constrained(scheduler: SmallScheduler, grammar: str, sampling: Sampling, generated: list[int] | None = None) -> Running:
    """A sequence that follows a grammar; with `generated`, one that goes on after these tokens."""
    s = scheduler.add([*prompt_of(45), *(generated or [])], sampling)
    s.n_prompt, s.grammar, s.end_tokens = 45, grammar, [END]
    return s


def run_to_end(scheduler: SmallScheduler, s: Running) -> list[int]:
    """Single steps until the end token, which is the last of the answer."""
    scheduler.prefill(s)
    while s.output[-1] != END:
        assert len(s.output) < LONGEST
        scheduler.decode([s], 1)
    return s.output


def answer(runner: ModelRunner, grammar: str, sampling: Sampling) -> list[int]:
    scheduler = SmallScheduler(runner)
    return run_to_end(scheduler, constrained(scheduler, grammar, sampling))


def grammar_runner(folder: Path) -> ModelRunner:
    """The tiny model with random weights and the tiny tokenizer, written to `folder` and loaded on the CPU."""
    write_tokenizer(write_model(folder))
    return load_runner(folder, "cpu")
