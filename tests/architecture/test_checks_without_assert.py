"""What refuses bytes from outside does not depend on `assert`, which `python -O` removes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ops.doc_tables import REPO

READERS = (
    "messages/wire", "messages/descriptors", "messages/public.py", "actors/gateway/bodies", "actors/gateway/http",
    "actors/gateway/admission", "actors/gateway/requests", "actors/gateway/journal", "actors/gateway/zeromq",
    "gpu_workers/model_store", "gpu_workers/batch",
)  # fmt: skip
DEADLINE_S = 60.0


def files() -> list[Path]:
    return [
        path for name in READERS for path in ([REPO / name] if name.endswith(".py") else sorted((REPO / name).rglob("*.py")))
    ]


def only_narrows(test: ast.expr) -> bool:
    """`x is not None` or `isinstance(x, ...)`, alone or joined by `and`."""
    if isinstance(test, ast.BoolOp):
        return all(map(only_narrows, test.values))
    if isinstance(test, ast.Call):
        return isinstance(test.func, ast.Name) and test.func.id == "isinstance"
    return isinstance(test, ast.Compare) and [type(one) for one in test.ops] == [ast.IsNot]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(REPO)))
def test_assert_only_narrows_types_where_bytes_from_outside_are_read(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [f"{path}:{node.lineno}" for node in ast.walk(tree) if isinstance(node, ast.Assert) and not only_narrows(node.test)]
    assert found == []


REFUSALS = """
from messages.descriptors import packets
from messages.errors import DescriptorError, WireError
from messages.wire import codec
assert False, "run with -O"
of_links = [(codec.decode_envelope, WireError), (codec.decode_answer, WireError)]
for read, refusal in [(packets.decode_request, DescriptorError), *of_links]:
    for data in (b"", bytes([0xC1]), bytes(100), bytes([0x91]) * 100_000, bytes([0xFF]) * 100):
        try:
            read(data)
        except refusal:
            print(read.__name__)
"""


def test_damaged_messages_are_refused_without_assert_too() -> None:
    ended = subprocess.run(
        [sys.executable, "-O", "-c", REFUSALS], cwd=REPO, capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert len(ended.stdout.split()) == 15
