"""The processes of a server, and the commands that ask it, import neither rich nor httpx, nor threads for products of matrices.
What comes later finds all."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

DEADLINE_S = 60.0
SCRIPT = """
import os, sys
import {module}
print({{"structlog", "numpy"}} <= set(sys.modules), bool({{"rich", "httpx"}} & set(sys.modules)))
print(len(os.listdir("/proc/self/task")))
import rich.console
print(os.environ.get("OPENBLAS_NUM_THREADS"))
"""


@pytest.mark.parametrize(
    "module", ["supervisor.children.incarnation", "supervisor.start, supervisor.placement.host", "supervisor.operator.calls"]
)
@pytest.mark.parametrize("threads", [None, "2"])
def test_a_process_of_the_server_imports_what_it_uses(module: str, threads: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {} if threads is None else {"OPENBLAS_NUM_THREADS": threads}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(module=module)],
        capture_output=True, text=True, timeout=DEADLINE_S, check=True, env=environment,
    )  # fmt: skip
    assert run.stdout == f"True False\n1\n{threads}\n"
