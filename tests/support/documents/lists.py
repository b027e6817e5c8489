"""What no test runs as it stands on its page, and why: the lists to which one adds a line. What nothing of the pages needs any
more has to go, says a test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.documents.code_blocks import CodeBlock


@dataclass(frozen=True)
class ShownBlock:
    """A rule for blocks of one page that begin with a text."""

    page: str
    begins: str
    reason: str

    def covers(self, block: CodeBlock) -> bool:
        """Whether the rule is for this block."""
        return block.page == self.page and block.text.lstrip().startswith(self.begins)


SHOWN = (
    ShownBlock("README.md", "client ──HTTP", "a drawing"),
    ShownBlock("docs/api.md", "ANTHROPIC_BASE_URL", "needs a program of Node; tests/clients/suites/agents_suite.py runs it"),
    ShownBlock("docs/api.md", "OPENAI_API_BASE_URL", "takes 7 GB; tests/clients/suites/open_webui_suite.py runs it"),
    ShownBlock("docs/caching.md", "prefix cache: ", "lines of supervisor status"),
    ShownBlock("docs/caching.md", "step thread", "a drawing"),
    ShownBlock("docs/caching.md", "gateway --Submit", "a drawing"),
    ShownBlock("docs/capacity.md", "model   ", "what supervisor plan prints"),
    ShownBlock("docs/capacity.md", "supervisor: gpus: ", "the text of an error"),
    ShownBlock("docs/commands.md", "serving  smollm2", "the screen of supervisor top; tests/supervisor/top/test_screen.py"),
    ShownBlock("docs/getting_started.md", ">>> What", "a conversation; tests/supervisor/chat/test_chat_terminal.py has one"),
    ShownBlock("docs/overload.md", "queue: expected", "the text of an error"),
    ShownBlock("docs/traces.md", "text_completion", "a trace as text"),
    ShownBlock("docs/zeromq.md", 'Client("tcp', "needs a second machine; tests/faults and tests/messages/client try it on one"),
)

OTHER_TOML = (ShownBlock("docs/api.md", 'model = "smollm2"', "the configuration of codex"),)
"""TOML that is no configuration of a server; it has to be TOML all the same."""

RUN_BY: Mapping[tuple[str, str], str] = {
    ("README.md", "python"): "tests/ops/test_readme_examples.py",
    ("README.md", "sh"): "tests/ops/test_readme_examples.py",
    ("docs/api.md", "sh"): "tests/ops/test_api_examples.py",
    ("docs/zeromq.md", "python"): "tests/ops/test_zeromq_examples.py",
    ("docs/getting_started.md", "python"): "tests/ops/test_getting_started.py",
}
"""Blocks that a test of their page runs; all others are run by those in tests/ops/site."""


@dataclass(frozen=True)
class Behind:
    """The flags of the server that the text before a block speaks of."""

    page: str
    begins: str
    flags: tuple[str, ...]


SERVERS = (
    Behind("docs/operations.md", "curl -X PUT", ("--api-keys",)),
    Behind("docs/operations.md", "curl -X POST http://127.0.0.1:8000/v1/drain", ("--api-keys", "--replicas", "2")),
)


@dataclass(frozen=True)
class NotRun:
    """Commands that are read by their program, but not run."""

    pattern: str
    reason: str
    pages: tuple[str, ...] = ()  # of these pages alone; empty: of all

    def covers(self, page: str, command: str) -> bool:
        """Whether a command of a page is one of these."""
        return (not self.pages or page in self.pages) and re.search(self.pattern, command) is not None


_SYSTEMD = ("docs/deployment.md",)

NOT_RUN: Sequence[NotRun] = (
    NotRun(r"^supervisor start .*(--kv-dtype fp8|--gpus 1 )", "needs a GPU"),
    NotRun(r"^supervisor start .*--tp 2", "the hash-chain model has one rank; its flags are read by check-config"),
    NotRun(r"^supervisor drill .*(VLLM|container=|--port 8802)", "needs another server"),
    NotRun(r"^make ", "installs; tests/ops/test_makefile.py, and each run of the tests begins with it"),
    NotRun(r"^(chrt .*)?python3? (-m ops\.bench|-m ops\.gpu|ops/gpu)", "minutes, or a GPU; tests/ops/bench has short ones"),
    NotRun(r"^\.venv/clients/(guidellm|aiperf)", "tests/clients/test_load_tools.py runs it"),
    NotRun(r"^pip install", "needs a network; the packages are those that pyproject.toml names"),
    NotRun(r"^prom(etheus|tool) ", "scrapes port 8000; tests/long/monitoring/test_dashboards.py asks every expression"),
    NotRun(r"^curl .*https://llm\.example\.com", "needs a name in the DNS; tests/faults/http/test_https.py has localhost"),
    NotRun(r"^\. \.venv/bin/activate", "a variable for the next line"),
    NotRun(r"^docker ", "needs a Docker engine; tests/ops/test_compose.py, tests/long/deployment/test_image.py (buildah)"),
    NotRun(r"^(debootstrap|container=|TEST_IMAGE_BASE=)", "needs root; tests/long/deployment/test_image.py is what it runs"),
    NotRun(r"^(helm|kubectl) ", "needs a cluster; tests/ops/kubernetes and tests/long/deployment/test_chart.py render them"),
    NotRun(r"(/bin/pip install|systemd-sysusers|^systemctl)", "needs root; tests/ops/test_service_unit.py", _SYSTEMD),
    NotRun(r"^supervisor status --run-dir /run/", "needs such a service; tests/supervisor/activation starts one", _SYSTEMD),
)


def is_listed(block: CodeBlock, rules: Sequence[ShownBlock]) -> bool:
    """Whether a list has a rule for a block."""
    return any(rule.covers(block) for rule in rules)
