"""Prompts for load: random token ids, random text of about a given number of tokens, or lines of a file."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from supervisor.bench.lengths import Lengths

# Frequent English words that are one token in nearly every vocabulary when a space stands before them.
_WORDS = (
    "the of and to in is was for that with as on by at from be are this have not but which had were they their one all we "
    "can more has if will would about when there who so no out up into than them some other time only could new these "
    "two may then do first any my now such like our over man me even most made after also did many before must through "
    "back years where much your way well down should because each just those people how too little state good very "
    "make world still own see men work long get here between both life being under never day same another know while "
    "last might us great old year off come since against go came right used take three"
)


@dataclass(frozen=True)
class Job:
    """One request to come."""

    prompt: str | list[int]
    max_tokens: int


Tokenize = Callable[[str], list[int]]


def random_ids(n: int, rng: random.Random, vocabulary: int) -> list[int]:
    """`n` token ids; the first ten of a vocabulary are left out, where special tokens tend to be."""
    return [rng.randrange(min(10, vocabulary - 1), vocabulary) for _ in range(n)]


def random_text(n: int, rng: random.Random, tokenize: Tokenize | None = None) -> str:
    """Text of about `n` tokens; of exactly `n`, where it can be had, with the tokenizer at hand."""
    words = rng.choices(_WORDS.split(), k=n)
    if tokenize is None:
        return " ".join(words)
    while len(words) > 1 and len(tokenize(" ".join(words))) > n:
        words.pop()
    return " ".join(words)


def synthetic_jobs(
    inputs: Lengths, outputs: Lengths, rng: random.Random, make_prompt: Callable[[int, random.Random], str | list[int]]
) -> Iterator[Job]:
    """Jobs without end."""
    while True:
        yield Job(make_prompt(inputs.draw(rng), rng), outputs.draw(rng))


def jobs_of_file(path: Path, outputs: Lengths, rng: random.Random) -> Iterator[Job]:
    """Jobs from a file, over and over: each line is a text, a JSON string, a JSON list of ids, or an object with `prompt` and
    perhaps `max_tokens`.

    Raises: ValueError naming the line.
    """
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"prompts: expected at least one line in {path}, got none")
    parsed = [_parse_line(number, line) for number, line in enumerate(lines, 1)]
    for prompt, max_tokens in itertools.cycle(parsed):
        yield Job(prompt, max_tokens or outputs.draw(rng))


def _parse_line(number: int, line: str) -> tuple[str | list[int], int]:
    if line[0] not in '{["':
        return line, 0
    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f"prompts: line {number}: expected JSON, got {error}") from None
    prompt, max_tokens = (value.get("prompt"), value.get("max_tokens", 0)) if isinstance(value, dict) else (value, 0)
    if not isinstance(prompt, str | list) or not isinstance(max_tokens, int):
        raise ValueError(f"prompts: line {number}: expected a text, ids, or an object with prompt and max_tokens")
    return prompt, max_tokens
