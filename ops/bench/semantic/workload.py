"""Questions in several words each, and a repeated workload of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

_PARAPHRASES = Path(__file__).with_name("paraphrases.txt")
_SKEW = 0.8  # of the Zipf distribution over the questions: a few are asked often, many now and then

_FRAMES = (
    "How do I repair {}?", "What does {} cost?", "Who has invented {}?", "Where can I buy {}?", "Tell a child what {} is.",
    "What is the history of {}?", "Which kinds of {} are there?", "How is {} made?", "What is dangerous about {}?",
    "Write a short poem about {}.", "How do I clean {}?", "What can I use instead of {}?", "How long does {} last?",
    "Is {} good for the environment?", "How much does {} weigh?", "Give me three facts about {}.", "How do I choose {}?",
    "What is {} made of?", "How do I store {} in winter?", "Which companies sell {}?",
)  # fmt: skip
_OTHER_FRAMES = (
    "What is the way to fix {}?", "How much must I pay for {}?", "Whose invention is {}?", "In which shops is {} sold?",
    "Tell a child about {}.", "How has {} developed over time?", "List the types of {}.", "Describe the production of {}.",
)  # fmt: skip
_THINGS = (
    "a bicycle", "a violin", "a laptop", "a wooden table", "a raincoat", "a bread oven", "a garden hose", "a telescope",
    "a wristwatch", "a sailing boat", "a fountain pen", "a leather sofa", "an umbrella", "a chess set", "a coffee grinder",
    "a camping tent", "a snow shovel", "a piano", "a drone", "a washing machine", "a hammock", "a candle", "a lawn mower",
    "a microscope", "a pair of skis", "a backpack", "a ceramic vase", "an accordion", "a solar panel", "a fishing rod",
    "a sewing machine", "a hair dryer", "a bookshelf", "a wheelbarrow", "a guitar", "a compass", "a kite", "a mattress",
    "a fire extinguisher", "a parrot cage", "a cheese knife", "a barometer", "a trampoline", "a waffle iron", "a mirror",
    "a doorbell", "a thermos flask", "a printer", "a rowing machine", "a chandelier",
)  # fmt: skip


class PosedQuestion(NamedTuple):
    """One request of a workload: the question that it asks, and in which words, both as indexes."""

    question: int
    words: int


def read_questions(path: Path = _PARAPHRASES) -> list[list[str]]:
    """The ways in which each question is put."""
    text = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return [paragraph.splitlines() for paragraph in text.strip().split("\n\n")]


def repeated_workload(questions: list[list[str]], n_requests: int, seed: int) -> list[PosedQuestion]:
    """Questions as users ask them: some of them often, each time in any of its words."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, len(questions) + 1) ** _SKEW
    rng.shuffle(weights)
    found = rng.choice(len(questions), n_requests, p=weights / weights.sum()).tolist()
    return [PosedQuestion(question, int(rng.integers(len(questions[question])))) for question in found]


def made_up_texts(n_texts: int) -> tuple[list[str], list[str]]:
    """(questions about things, the same kinds of questions in other words); at most 1,000 and 400."""
    known = [frame.format(thing) for thing in _THINGS for frame in _FRAMES][:n_texts]
    return known, [frame.format(thing) for thing in _THINGS for frame in _OTHER_FRAMES]
