"""Every block of code in the documents is known: run, read by the program that it is for, or on a list with a reason."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from ops.site.navigation import pages_of
from supervisor.__main__ import main
from supervisor.config.server_config import load_config
from tests.support.documents.code_blocks import INDENTED, REPO, CodeBlock, all_blocks, blocks_of, commands_of
from tests.support.documents.command_readers import NotAccepted, check, parts_of
from tests.support.documents.lists import NOT_RUN, OTHER_TOML, RUN_BY, SHOWN, is_listed
from tests.support.documents.page_shell import make_files, without
from tests.support.documents.shell_blocks import is_shell, shell_blocks

_DATA = {"json": json.loads, "yaml": yaml.safe_load, "toml": tomllib.loads}
_NEEDS_GPU = ("--kv-dtype fp8", "--gpus 1 ")


SHELL = shell_blocks()


def ids(block: CodeBlock) -> str:
    """The name of a parameter."""
    return str(block)


def test_every_block_is_known() -> None:
    unknown = [
        str(block)
        for block in all_blocks()
        if not is_shell(block) and block.language not in (*_DATA, "python") and not is_listed(block, SHOWN)
    ]
    assert unknown == [], "nothing runs these, no reader knows them, and no list in tests/support/documents/lists.py has them"


def test_the_lists_have_nothing_that_no_page_needs() -> None:
    """Of pages that are there."""
    commands = [(block.page, command) for block in SHELL for command in commands_of(block)]
    shown = [rule for rule in (*SHOWN, *OTHER_TOML) if (REPO / rule.page).is_file()]
    assert [rule for rule in shown if not any(rule.covers(block) for block in all_blocks())] == []
    not_run = [rule for rule in NOT_RUN if all((REPO / page).is_file() for page in rule.pages)]
    assert [rule for rule in not_run if not any(rule.covers(*one) for one in commands)] == []
    places = {(block.page, block.language) for block in all_blocks()}
    assert [place for place in RUN_BY if place not in places] == []
    assert [test for test in RUN_BY.values() if not (REPO / test).is_file()] == []


def test_a_test_that_a_reason_names_is_there() -> None:
    reasons = [rule.reason for rule in (*SHOWN, *OTHER_TOML, *NOT_RUN)]
    named = [path.rstrip(".") for reason in reasons for path in re.findall(r"tests/[\w./]+", reason)]
    assert named
    assert [path for path in named if not (REPO / path).exists()] == []


@pytest.mark.parametrize("block", SHELL, ids=ids)
def test_a_command_is_one_that_its_program_accepts(block: CodeBlock) -> None:
    for command in commands_of(block):
        check(command)


@pytest.mark.parametrize("block", [block for block in all_blocks() if block.language in _DATA], ids=ids)
def test_data_can_be_read(block: CodeBlock, tmp_path: Path) -> None:
    """TOML by the reader of a server's configuration, but for what is another program's."""
    assert _DATA[block.language](block.text)
    if block.language == "toml" and not is_listed(block, OTHER_TOML):
        path = tmp_path / "server.toml"
        path.write_text(block.text)
        assert load_config(str(path))


@pytest.mark.parametrize("block", [block for block in all_blocks() if block.language == "python"], ids=ids)
def test_a_program_can_be_read(block: CodeBlock) -> None:
    compile(block.text, str(block), "exec")


def test_each_start_is_of_flags_that_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`check-config` with these flags, and with the hash-chain model in the place of models that are not here."""
    make_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    starts = [part for block in SHELL for command in commands_of(block) for part in starts_of(command)]
    assert len(starts) > 20
    for words in starts:
        flags = [*without(tuple(words[2:])), "--model", "hash-chain", "--port", "0"]
        checked = CliRunner().invoke(main, ["check-config", *flags])
        assert checked.exit_code == 0, f"{' '.join(words)}: {checked.output}"


def starts_of(command: str) -> list[list[str]]:
    """The `supervisor start` in a command, unless it needs a GPU."""
    if any(flag in command for flag in _NEEDS_GPU):
        return []
    return [part for part in parts_of(command) if part[:2] == ["supervisor", "start"]]


def test_a_page_of_the_documents_is_on_the_site_once() -> None:
    there = sorted(path.name for path in (REPO / "docs").glob("*.md"))
    named = [page.name for page in pages_of() if not page.is_drawn and page.source.startswith("docs/")]
    assert len(named) == len(set(named))
    assert [name for name in there if name not in named] == [], "add them to ops/site/navigation.py"


def test_blocks_are_found_with_their_lines() -> None:
    fenced = "# A\n\n```sh\nmake test \\\n  ARGS=-x   # why\n```\n"
    page = f"{fenced}\nText:\n\n    supervisor status\n\n    indented too\n- a list\n    goes on\n"
    fence, first, second = blocks_of("a.md", page)
    assert (fence.line, fence.language, commands_of(fence)) == (4, "sh", ["make test ARGS=-x"])
    assert (first.line, first.language, first.text) == (10, INDENTED, "supervisor status")
    assert second.text == "indented too"
    with pytest.raises(ValueError, match=r"a\.md:1: a fence"):
        list(blocks_of("a.md", "```sh\nmake\n"))


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("supervisor begin", "no such command"),
        ("supervisor start --modell x", "No such option|unknown|did you mean"),
        ("echo hi | supervisor chat --colour", "No such option|unknown|did you mean"),
        ("python -m ops.bench cache --pages many", "many"),
        ("python -m ops.bench cache --file ops/bench/cache/none.gz", "no such file"),
        ("python3 -m ops.gpu.nothing", "no such module"),
        ("make everything", "no such target"),
        ("pip install 'tardigrade-serve[everything]'", "nothing of ours names it"),
        ("cp ops/prometheus/none.yml /etc", "no such file"),
        ("prometheus --config.file=a/prometheus/none.yml", "no such file"),
        ("promtool query instant http://127.0.0.1:9090 'sum(tardigrade_nothing)'", "no such metric"),
        ("wget http://127.0.0.1:8000/metrics", "no reader knows this program"),
        ("supervisor run smollm2 'What", "No closing quotation"),
    ],
)
def test_a_command_that_would_fail_is_found(command: str, why: str) -> None:
    with pytest.raises(NotAccepted, match=why):
        check(command)
