"""What a client shows and what the server knows are compared by `hmac.compare_digest` wherever both are secret."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.architecture.source_tree import REPO

SECRET = ("secret", "digest", "operator_key", "api_key", "given", "password")
FOLDERS = ("messages/access", "actors/gateway/access", "actors/gateway/cache_reset", "supervisor/access")
FILES = ("actors/gateway/zeromq/keys.py", "actors/gateway/zeromq/cache_resets.py", "actors/gateway/http/admin_calls.py")


def compared_secrets(source: str) -> list[str]:
    """The comparisons with == or != in which a name of a secret stands alone, or as the end of an attribute."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
            for side in (node.left, *node.comparators):
                name = side.attr if isinstance(side, ast.Attribute) else side.id if isinstance(side, ast.Name) else ""
                if name in SECRET:
                    found.append(ast.unparse(node))
    return found


def doors() -> list[Path]:
    return [*(path for folder in FOLDERS for path in (REPO / folder).rglob("*.py")), *(REPO / file for file in FILES)]


def test_no_secret_is_compared_as_text() -> None:
    assert {str(path): found for path in doors() if (found := compared_secrets(path.read_text(encoding="utf-8")))} == {}
    assert compared_secrets("if record.digest == given: pass") == ["record.digest == given"] * 2


def test_both_secrets_are_compared_in_constant_time() -> None:
    users = {path.name for path in doors() if "hmac.compare_digest(" in path.read_text(encoding="utf-8")}
    assert users == {"api_key.py", "operator_right.py"}
