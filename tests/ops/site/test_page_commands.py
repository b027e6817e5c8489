"""The commands of each page, one after the other in a shell, with real servers of the hash-chain model behind them."""

from __future__ import annotations

import shutil
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.documents.code_blocks import CodeBlock, commands_of
from tests.support.documents.lists import NOT_RUN, RUN_BY, SERVERS
from tests.support.documents.page_shell import PageShell
from tests.support.documents.shell_blocks import shell_blocks

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def blocks_of_pages() -> list[tuple[str, list[CodeBlock]]]:
    """The blocks with commands to run, page by page in their order there."""
    blocks = [block for block in shell_blocks() if (block.page, block.language) not in RUN_BY and commands_to_run(block)]
    return [(page, list(group)) for page, group in groupby(blocks, key=lambda block: block.page)]


def commands_to_run(block: CodeBlock) -> list[str]:
    """The commands of a block without those that the list of what is not run has."""
    return [command for command in commands_of(block) if not any(rule.covers(block.page, command) for rule in NOT_RUN)]


@pytest.mark.skipif(shutil.which("curl") is None or shutil.which("openssl") is None, reason="needs curl and openssl")
@pytest.mark.parametrize(("page", "blocks"), [pytest.param(*one, id=one[0]) for one in blocks_of_pages()])
def test_the_commands_of_a_page_do_what_they_say(page: str, blocks: list[CodeBlock], tmp_path: Path) -> None:
    with PageShell(tmp_path) as shell:
        for block in blocks:
            for flags in (one.flags for one in SERVERS if one.page == page and block.text.startswith(one.begins)):
                shell.start(*flags)
            for command in commands_to_run(block):
                shell.run(command)
