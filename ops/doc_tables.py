"""Draws the tables of the documents from the code: SECURITY.md, and in docs/ those of the documents that `TABLES` names.

    python -m ops.doc_tables            write them between their markers
    python -m ops.doc_tables --check    exit status 1 if a document differs from what would be written

Each table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`. A test runs the check.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from messages.outcomes import ExitCode
from messages.routes import CHILDREN, ROUTES, Route
from ops.access_tables import roles_table
from ops.alert_tables import alerts_table, faults_table
from ops.api_tables import fields_table, other_fields_table
from ops.config_tables import settings_tables
from ops.metric_tables import metric_tables, vllm_table
from ops.migration_tables import foreign_commands_table, foreign_flags_table, foreign_variables_table
from supervisor.config.server_config import ServerConfig
from supervisor.placement.hardware import Gpu
from supervisor.placement.placement import Placement
from supervisor.policy.child_spec import Group
from supervisor.start_facts import StartFacts
from supervisor.tree import build_tree

REPO = Path(__file__).parents[1]
MAPPED_FOLDERS = ("messages", "actors", "gpu_workers", "supervisor", "ops")
_ALL_CHILDREN = "every child"


def first_sentence(docstring: str) -> str:
    """The first sentence of a docstring, on one line, without its full stop."""
    paragraph = " ".join(inspect.cleandoc(docstring).partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.?!])\s+(?=[A-Z`])", paragraph, maxsplit=1)[0]
    return sentence.removesuffix(".").removesuffix(":")


def message_table() -> str:
    """Who says what to whom, in the order of messages/routes.py, one conversation after the other."""
    lines = ["| conversation | message | from | to | meaning | answered by |", "|---|---|---|---|---|---|"]
    for conversation, routes in groupby(ROUTES, key=lambda route: route.kind.__module__.rpartition(".")[2]):
        lines += [_message_row(conversation, route) for route in routes]
    return "\n".join(lines)


def _message_row(conversation: str, route: Route) -> str:
    cells = (
        conversation,
        f"`{route.kind.__name__}`",
        _roles(route.senders),
        _roles(route.receivers),
        first_sentence(route.kind.__doc__ or ""),
        "" if route.answered_by == "-" else route.answered_by,
    )
    return _row(*cells)


def _roles(roles: tuple[str, ...]) -> str:
    return _ALL_CHILDREN if set(roles) == set(CHILDREN) else ", ".join(roles)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def supervision_table() -> str:
    """The groups of the tree in start order, for two replicas of two ranks, from supervisor/tree.py itself."""
    gpus = tuple(Gpu(str(index), "", 0, (9, 0)) for index in range(4))
    placement = Placement("cuda", gpus, tp=2, replicas=2, dtype="bfloat16")
    facts = StartFacts(
        state_dir=Path(), run_dir=Path(), listen_fd=-1, model_setting="hash-chain", model_name="", model_length=0,
        placement=placement, cores=1,
    )  # fmt: skip
    lines = [
        "| group | children | when one dies | restarts allowed | what it does; what its death means |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_group_row(group) for group in build_tree(ServerConfig(), facts))])


def _group_row(group: Group) -> str:
    budget = f"{group.budget.restarts} in {group.budget.window_s:g} s"
    children = ", ".join(f"`{child.name}`" for child in group.children)
    return _row(group.title, children, group.strategy.value, budget, group.why)


def exit_table() -> str:
    """The exit statuses of all programs, from messages/outcomes.py."""
    return "\n".join(["| exit status | it means |", "|---|---|", *(_row(str(code.value), code.meaning) for code in ExitCode)])


def file_map() -> str:
    """Every Python file of the product and of ops, with the first sentence of its docstring, folder by folder."""
    by_folder: dict[Path, list[Path]] = {}
    for path in mapped_files():
        by_folder.setdefault(path.parent, []).append(path)
    blocks = []
    for folder in sorted(by_folder, key=_folder_order):
        title = _phrase(folder / "__init__.py") if (folder / "__init__.py").exists() else ""
        lines = [f"**`{folder.relative_to(REPO).as_posix()}/`** {title}", "", "| file | |", "|---|---|"]
        files = [path for path in by_folder[folder] if path.name != "__init__.py"]
        lines += [_row(f"`{path.relative_to(REPO).as_posix()}`", _phrase(path)) for path in files]
        blocks.append("\n".join(lines if files else lines[:1]))
    return "\n\n".join(blocks)


def mapped_files() -> list[Path]:
    """The files that the map must name."""
    return [path for folder in MAPPED_FOLDERS for path in sorted((REPO / folder).rglob("*.py"))]


def _folder_order(folder: Path) -> tuple[int, str]:
    relative = folder.relative_to(REPO)
    return MAPPED_FOLDERS.index(relative.parts[0]), relative.as_posix()


def _phrase(path: Path) -> str:
    return first_sentence(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


@dataclass(frozen=True)
class Table:
    """One table: the document it stands in, and the function that draws it."""

    document: Path
    draw: Callable[[], str]


TABLES = {
    "messages": Table(REPO / "docs" / "architecture.md", message_table),
    "exit statuses": Table(REPO / "docs" / "architecture.md", exit_table),
    "supervision": Table(REPO / "docs" / "architecture.md", supervision_table),
    "api fields": Table(REPO / "docs" / "api.md", fields_table),
    "api other fields": Table(REPO / "docs" / "api.md", other_fields_table),
    "settings": Table(REPO / "docs" / "configuration.md", settings_tables),
    "roles": Table(REPO / "SECURITY.md", roles_table),
    "foreign flags": Table(REPO / "docs" / "migration.md", foreign_flags_table),
    "foreign commands": Table(REPO / "docs" / "migration.md", foreign_commands_table),
    "foreign variables": Table(REPO / "docs" / "migration.md", foreign_variables_table),
    "metrics": Table(REPO / "docs" / "metrics.md", metric_tables),
    "vllm metrics": Table(REPO / "docs" / "metrics.md", vllm_table),
    "alerts": Table(REPO / "docs" / "monitoring.md", alerts_table),
    "faults": Table(REPO / "docs" / "troubleshooting.md", faults_table),
    "files": Table(REPO / "docs" / "map.md", file_map),
}


def redraw(document: Path) -> str:
    """The text of a document with each of its tables drawn anew.

    Raises: ValueError if a marker is missing.
    """
    text = document.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        if table.document != document:
            continue
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        if begin not in text or end not in text:
            raise ValueError(f"{document.name}: expected the markers {begin} and {end}")
        before, rest = text.split(begin, 1)
        after = rest.split(end, 1)[1]
        text = f"{before}{begin}\n{table.draw()}\n{end}{after}"
    return text


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit status."""
    stale = 0
    for document in sorted({table.document for table in TABLES.values()}):
        wanted = redraw(document)
        if wanted == document.read_text(encoding="utf-8"):
            continue
        stale += 1
        if "--check" in arguments:
            print(f"{document.name}: its tables differ from the code; run python -m ops.doc_tables", file=sys.stderr)
        else:
            document.write_text(wanted, encoding="utf-8")
    return int(stale > 0 and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
