"""Every block of code of every document: what stands between fences, and what is indented by four spaces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPO = Path(__file__).parents[3]
_FENCE = "```"
_INDENT = "    "
INDENTED = "indented"


@dataclass(frozen=True)
class CodeBlock:
    """A block: its page relative to the repository, its first line there, what its fence says it is, and its text."""

    page: str
    line: int
    language: str  # "" where the fence does not say it; INDENTED for one without a fence
    text: str

    def __str__(self) -> str:
        """Where it stands, for messages of tests."""
        return f"{self.page}:{self.line}"


@cache
def all_blocks() -> tuple[CodeBlock, ...]:
    """The blocks of README.md and its like, and of docs/, page by page."""
    pages = sorted([*REPO.glob("*.md"), *(REPO / "docs").glob("*.md")])
    return tuple(
        block for page in pages for block in blocks_of(page.relative_to(REPO).as_posix(), page.read_text(encoding="utf-8"))
    )


def blocks_of(page: str, text: str) -> Iterator[CodeBlock]:
    """The blocks of one page. Raises: ValueError for a fence that is not closed."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        before = lines[number - 1] if number else ""
        if line.lstrip().startswith(_FENCE):
            length = _until_fence(page, number, lines)
            yield CodeBlock(page, number + 2, line.strip().strip("`").strip(), "\n".join(lines[number + 1 : number + length]))
            number += length
        elif line.startswith(_INDENT) and not before.strip():
            length = _indented(lines[number:])
            shown = [one.removeprefix(_INDENT) for one in lines[number : number + length]]
            yield CodeBlock(page, number + 1, INDENTED, "\n".join(shown).rstrip())
            number += length
        number += 1


def _until_fence(page: str, start: int, lines: list[str]) -> int:
    for number in range(start + 1, len(lines)):
        if lines[number].strip() == _FENCE:
            return number - start
    raise ValueError(f"{page}:{start + 1}: a fence that is not closed")


def _indented(lines: list[str]) -> int:
    return next((number for number, line in enumerate(lines) if not line.startswith(_INDENT)), len(lines))


def commands_of(block: CodeBlock) -> list[str]:
    """The commands of a block of shell: continued lines are one, comments are left out."""
    joined = re.sub(r"\\\n\s*", "", block.text)
    lines = (re.sub(r"(?:^|\s+)#\s.*$", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line]
