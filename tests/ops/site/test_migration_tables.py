"""The tables for users of other servers show each command of ours as one piece of code."""

from __future__ import annotations

from ops.migration_tables import foreign_commands_table, foreign_flags_table


def test_a_command_below_a_command_is_part_of_the_code() -> None:
    table = foreign_commands_table()
    assert "`supervisor keys add --tenant NAME`" in table
    assert "`supervisor keys revoke ID`" in table
    assert "`supervisor cache reset` |" in table


def test_a_command_with_a_hyphen_is_code_as_a_whole() -> None:
    assert "`supervisor check-config`" in foreign_commands_table()


def test_words_after_a_command_are_not_code() -> None:
    assert "`supervisor stop` for the server; `supervisor drill` kills its processes" in foreign_commands_table()


def test_the_value_of_a_flag_is_part_of_the_code() -> None:
    assert "`--log-format json`" in foreign_flags_table()
