"""Tables in wide and narrow terminals, and the commands that print them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from supervisor.__main__ import main
from supervisor.tables.table import table_text

HEADS = ("name", "size", "here")
ROWS = (("a", "1 MB", "1 replica x tp 1 on CPU cores, float32"), ("long-name", "-", "no: it is not whole"))
WORDS = st.text("ab-", min_size=1, max_size=9)


def test_a_wide_terminal_has_columns() -> None:
    assert table_text(HEADS, ROWS, 80).splitlines() == [
        "name       size  here",
        "a          1 MB  1 replica x tp 1 on CPU cores, float32",
        "long-name  -     no: it is not whole",
    ]


def test_a_narrow_one_has_the_rest_of_a_row_below_it() -> None:
    assert table_text(HEADS, ROWS, 40, 2).splitlines() == [
        "name       size",
        "a          1 MB",
        "    here 1 replica x tp 1 on CPU cores,",
        "    float32",
        "long-name  -",
        "    here no: it is not whole",
    ]


@given(st.lists(st.tuples(WORDS, *[WORDS] * 11), max_size=5), st.integers(40, 120))
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_lost(rows: list[tuple[str, ...]], width: int) -> None:
    text = table_text([f"head{index}" for index in range(12)], rows, width)
    assert max(map(len, text.splitlines())) <= width
    for row in rows:
        assert all(cell in text for cell in row if cell != "-")


@pytest.mark.parametrize("command", [["models"], ["tenants", "list"], ["keys", "list"]])
def test_commands_fit_into_80_columns(command: list[str], tmp_path: Path) -> None:
    place = ["--run-dir", str(tmp_path)]
    for made in (["keys", "add", "--tenant", "a" * 40], ["tenants", "set", "a" * 40, "--tokens-per-day", str(10**9)]):
        assert CliRunner().invoke(main, [*made, *place]).exit_code == 0
    result = CliRunner().invoke(main, command if command == ["models"] else [*command, *place], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_keys_and_tenants_are_found_by_the_run_directory(tmp_path: Path) -> None:
    """A server with --run-dir alone has its state there; one that runs says where it has it."""
    run_dir, states = tmp_path / "run", tmp_path / "states"
    run_dir.mkdir()
    states.mkdir()
    assert CliRunner().invoke(main, ["keys", "add", "--tenant", "a", "--run-dir", str(run_dir)]).exit_code == 0
    assert (run_dir / "api-keys.json").is_file()
    (run_dir / "server.json").write_text(f'{{"keys_dir": "{states}"}}')
    assert CliRunner().invoke(main, ["tenants", "set", "a", "--weight", "2", "--run-dir", str(run_dir)]).exit_code == 0
    assert (states / "tenants.json").is_file()
