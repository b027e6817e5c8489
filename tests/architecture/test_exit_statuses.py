"""Exit statuses: every program takes its own from `ExitCode`, and what help texts say of them is true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

from messages.outcomes import ExitCode
from supervisor.__main__ import main
from tests.support.architecture.source_tree import REPO, SourceFile, product_files

_EXITS = {"exit", "_exit", "fail", "leave"}  # sys.exit, os._exit, and our own functions that end a process

_FOREIGN = """
import sys
before = set(sys.modules)
import supervisor.parent.parent
ours = {name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names}
print(*sorted(name for name in ours if name.partition(".")[0] not in ("supervisor", "messages")))
"""


def test_no_program_ends_with_a_bare_number() -> None:
    assert [found for file in product_files() for found in bare_statuses(file)] == []


def bare_statuses(file: SourceFile) -> list[str]:
    """Calls that end the process with a number, and module constants that name one."""
    calls = [
        node
        for node in file.nodes
        if isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, int)
        and ast.unparse(node.func).rpartition(".")[2] in _EXITS
    ]
    constants = [node for node in file.tree.body if isinstance(node, ast.Assign) and re.match(r"_?EXIT_", ast.unparse(node))]
    return [f"{file.path}:{node.lineno}" for node in [*calls, *constants]]


def test_the_help_of_each_command_names_statuses_that_exist() -> None:
    known = {int(code) for code in ExitCode} - {ExitCode.HAND_OVER}
    for name, command in main.commands.items():
        listed = (command.help or "").partition("Exit status")[2]
        numbers = {int(number) for number in re.findall(r"^ +(\d+)  ", listed, re.MULTILINE)}
        assert ExitCode.DONE in numbers, f"{name} --help lists no exit statuses"
        assert numbers <= known, name


def test_the_parent_of_the_supervisor_loads_only_the_standard_library() -> None:
    run = subprocess.run(
        [sys.executable, "-S", "-c", _FOREIGN], cwd=REPO, capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.split() == []
