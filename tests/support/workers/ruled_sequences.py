"""Sequences with rules for single tokens, for tests of runners on any device."""

from __future__ import annotations

from collections import Counter

from messages.steps import TokenRules
from tests.support.workers.sampling_kinds import KINDS, prompt_of
from tests.support.workers.small_scheduler import Running, SmallScheduler
from tests.support.workers.tiny_model import TINY

RULES = ("bias", "allowed", "bad words", "bad sequences")


def rules_against(free: list[int], name: str) -> TokenRules:
    """Rules of this kind that an answer breaks which is `free` without them."""
    often = [token for token, _ in Counter(free).most_common(3)]
    if name == "bias":
        return TokenRules(biased=[*often, 5], biases=[*[-100.0, 4.5, -1.0][: len(often)], 8.0])
    if name == "allowed":
        return TokenRules(
            allowed=[token for token in range(0, TINY["vocab_size"], 2) if token != often[0]], biased=[2], biases=[5.0]
        )
    if name == "bad words":
        return TokenRules(bad=[[token] for token in free])
    return TokenRules(bad=[free[3:6], free[:2], [free[6], free[7]]])


def keeps(output: list[int], rules: TokenRules) -> bool:
    """True if no token of this output is forbidden."""
    ends = [output[: end + 1] for end in range(len(output))]
    has_bad = any(part[-len(bad) :] == bad for part in ends for bad in rules.bad)
    return not has_bad and (rules.allowed is None or set(output) <= set(rules.allowed))


def ruled(scheduler: SmallScheduler, kind: str, rules: TokenRules, output: list[int] | None = None) -> Running:
    """A sequence with rules, which an earlier rank may have begun."""
    s = scheduler.add(prompt_of(45), KINDS[kind])
    s.rules = rules
    s.tokens += output or []
    s.n_known = len(s.tokens)
    return s
