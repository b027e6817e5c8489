"""Runs the suites of clients against a server, each in the environment that has its client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_workers.models.resolve import resolve_model
from tests.clients.programs import own_variables, program_of

SUITES = Path(__file__).parent / "suites"
MODEL = "smollm2"
_LIMIT_S = 600.0


@dataclass(frozen=True)
class Suite:
    """A suite: the package of its client, and the environment that has it; "": that of the tests."""

    client: str
    environment: str = ""

    @property
    def python(self) -> str:
        """The interpreter of its environment. Without that environment the test is skipped."""
        return program_of(self.environment, "python") if self.environment else sys.executable

    @property
    def version(self) -> str:
        """Of the client."""
        program = f"from importlib.metadata import version; print(version({self.client!r}))"
        return subprocess.run([self.python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


BY_NAME: Mapping[str, Suite] = {
    "openai": Suite("openai"),
    "anthropic": Suite("anthropic"),
    "ollama": Suite("ollama"),
    "langchain": Suite("langchain-openai", "openai-3"),
    "instructor": Suite("instructor", "openai-3"),
    "agents": Suite("openai-agents", "openai-3"),
    "lm_eval": Suite("lm-eval", "openai-3"),
    "llama_index": Suite("llama-index-llms-openai-like", "openai-2"),
    "litellm": Suite("litellm", "openai-2"),
}


def run_suite(url: str, name: str, out: Path) -> subprocess.CompletedProcess[str]:
    """Run pytest on a suite against the server at `url`; what it has printed, and its exit status. `out`: the files that it
    writes begin with this."""
    given = {"CLIENT_URL": url, "CLIENT_MODEL": MODEL, "CLIENT_MODEL_FOLDER": str(resolve_model(MODEL).path)}
    options = ["-c", str(SUITES / "pytest.ini"), "--confcutdir", str(SUITES), "-p", "no:cacheprovider", "-q"]
    return subprocess.run(
        [BY_NAME[name].python, "-m", "pytest", *options, str(SUITES / f"{name}_suite.py")],
        env=own_variables() | given | {"CLIENT_OUT": str(out)},
        cwd=out.parent,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
