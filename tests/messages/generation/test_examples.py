"""Sampling parameters: each is declared with an example, so that a warm-up uses all of them."""

from __future__ import annotations

from messages.generation.sampling import Sampling, example_sampling


def test_the_example_uses_every_parameter_but_the_seed() -> None:
    example, default = example_sampling(), Sampling()
    unused = {name for name in Sampling.__struct_fields__ if getattr(example, name) == getattr(default, name)}
    assert unused == {"seed"}
