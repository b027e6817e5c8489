"""The comments beside the fields of the configuration's structs, which say what each key means."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize

import msgspec


def comments_of(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The comment of each field, beside it or in the lines above it, by the field's name; "" where there is none."""
    source = textwrap.dedent(inspect.getsource(struct))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first = node.lineno
            while first - 1 in comments and comments[first - 1].line.lstrip().startswith("#"):
                first -= 1
            lines = [line for line in range(first, (node.end_lineno or node.lineno) + 1) if line in comments]
            found[node.target.id] = " ".join(comments[line].string.lstrip("# ") for line in lines)
    return found
