"""Runs the suites of clients against a server, each in the environment that has its client."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_workers.models.resolve import resolve_model
from tests.clients.forced_call import ForcedCall
from tests.clients.programs import own_variables, program_of

SUITES = Path(__file__).parent / "suites"
MODEL = "smollm2"
_LIMIT_S = 600.0
_COMMAND = "echo found-$((40 + 2))"  # what agents run; its result is not in it


@dataclass(frozen=True)
class Suite:
    """A suite: the package of its client, and the environment that has it; "": that of the tests.

    `program`: what is run of a client that is no Python package. `forced`: the call that the model is made to answer with.
    `has_texts`: its requests have texts of its authors, which no recording keeps.
    """

    client: str
    environment: str = ""
    program: str = ""
    forced: ForcedCall | None = None
    has_texts: bool = False

    @property
    def python(self) -> str:
        """The interpreter that has the client. Without its environment the test is skipped."""
        return program_of(self.environment, "python") if self.environment and not self.program else sys.executable

    @property
    def program_path(self) -> str:
        """The path of its program, "" without one. Without its environment the test is skipped."""
        return program_of(self.environment, self.program) if self.program else ""

    @property
    def version(self) -> str:
        """Of the client."""
        if self.program:
            said = subprocess.run([self.program_path, "--version"], capture_output=True, text=True, check=True).stdout
            return re.findall(r"\d+\.\d+\S*", said)[0]
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
    "codex": Suite("@openai/codex", "agents", "codex", ForcedCall("exec_command", {"cmd": _COMMAND}), has_texts=True),
    "claude_code": Suite(
        "@anthropic-ai/claude-code", "agents", "claude", ForcedCall("Bash", {"command": _COMMAND}), has_texts=True
    ),
    "continue": Suite("@continuedev/cli", "agents", "cn", ForcedCall("Bash", {"command": _COMMAND}), has_texts=True),
    "open_webui": Suite("open-webui", "open-webui", forced=ForcedCall("get_time", {"zone": "UTC"}), has_texts=True),
}


def run_suite(url: str, name: str, out: Path) -> subprocess.CompletedProcess[str]:
    """Run pytest on a suite against the server at `url`; what it has printed, and its exit status. `out`: the files that it
    writes begin with this."""
    suite = BY_NAME[name]
    given = {"CLIENT_URL": url, "CLIENT_MODEL": MODEL, "CLIENT_MODEL_FOLDER": str(resolve_model(MODEL).path)}
    given["CLIENT_PROGRAM"] = suite.program_path
    options = ["-c", str(SUITES / "pytest.ini"), "--confcutdir", str(SUITES), "-p", "no:cacheprovider", "-q"]
    return subprocess.run(
        [suite.python, "-m", "pytest", *options, str(SUITES / f"{name}_suite.py")],
        env=own_variables() | given | {"CLIENT_OUT": str(out)},
        cwd=out.parent,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
