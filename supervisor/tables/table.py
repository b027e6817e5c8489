"""A table that fits into a terminal: where its columns do not, each row becomes a line and folded lines below it. Pure, but for
the width."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

PLAIN_WIDTH = 240  # where there is no terminal
_GAP, _INDENT = "  ", "    "
_UNBROKEN = "\xa0"


def terminal_width() -> int:
    """Characters of a line: of the terminal, or $COLUMNS."""
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns


def table_text(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, n_first: int | None = None) -> str:
    """The rows below their heads, in lines of at most `width` characters, as far as names leave room for that.

    Where the columns are too wide, the first `n_first` stay a table (None: the first column alone); of the others each row has
    "head value" below its own line, without those that are empty or "-".
    """
    whole = _columns([heads, *rows])
    if all(len(line) <= width for line in whole):
        return "\n".join(whole)
    n = n_first or 1
    first = _columns([heads[:n], *(row[:n] for row in rows)])
    lines = first[:1]
    for line, row in zip(first[1:], rows, strict=True):
        rest = [_item(head, cell, width) for head, cell in zip(heads[n:], row[n:], strict=True) if cell not in ("", "-")]
        lines += [line, *_folded(", ".join(rest), width)]
    return "\n".join(lines)


def _item(head: str, cell: str, width: int) -> str:
    """A head and its value, which stay on one line where they fit."""
    item = f"{head} {cell}"
    return item.replace(" ", _UNBROKEN) if len(_INDENT) + len(item) < width else item


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _folded(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(text, max(width, 20), initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)
    return [line.replace(_UNBROKEN, " ") for line in lines]
