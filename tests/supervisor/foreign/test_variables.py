"""Variables of other servers that are set when ours starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from supervisor.foreign.variables import notices


def test_what_is_set_is_answered_with_what_there_is_and_without_its_value() -> None:
    said = notices({"VLLM_API_KEY": "sk-secret", "OLLAMA_HOST": "0.0.0.0", "OLLAMA_ORIGINS": "", "HF_TOKEN": "hf-secret"})
    assert said == [
        "VLLM_API_KEY is set and has no effect; here it is --api-keys; `supervisor keys add` makes a key",
        "OLLAMA_HOST is set and has no effect; here it is --host, --port",
    ]


@pytest.mark.slow
def test_a_start_says_it_before_the_plan() -> None:
    command = [sys.executable, "-m", "supervisor", "check-config", "--model", "hash-chain", "--port", "0", "--gpus", "0"]
    environment = {**os.environ, "OLLAMA_NUM_PARALLEL": "4"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    first, second, *_ = done.stderr.splitlines()
    assert first == "OLLAMA_NUM_PARALLEL is set and has no effect; here it is --max-sequences, for each replica"
    assert second.startswith("CPU cores: 1 replica")
