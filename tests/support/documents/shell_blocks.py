"""Which blocks of the documents have commands: by what their fence says, or because the programs of all lines are known."""

from __future__ import annotations

from tests.support.documents.code_blocks import INDENTED, CodeBlock, all_blocks, commands_of
from tests.support.documents.command_readers import knows
from tests.support.documents.lists import SHOWN, is_listed

_SHELL = ("sh", "bash")
_MAYBE_SHELL = ("", "text", "console", INDENTED)


def is_shell(block: CodeBlock) -> bool:
    """Whether a block has commands."""
    if block.language in _SHELL:
        return True
    return block.language in _MAYBE_SHELL and not is_listed(block, SHOWN) and all(map(knows, commands_of(block)))


def shell_blocks() -> list[CodeBlock]:
    """The blocks with commands, page by page."""
    return [block for block in all_blocks() if is_shell(block)]
