"""`supervisor keys`: what it prints, what it keeps, and how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from messages.access.api_key import Role, is_key_of, key_id_of, new_key
from messages.access.audit_log import AUDIT_FILE, AuditRecord
from messages.access.curve_keys import CURVE_KEY_FILE
from messages.access.key_file import KEY_FILE, read_keys
from supervisor.__main__ import main
from supervisor.access.key_changes import UnknownKey, with_ended, with_new, with_rotated

DAY_S = 86_400.0


def call(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["keys", *arguments, "--state-dir", str(folder)])


def test_a_key_is_made_listed_rotated_and_revoked(tmp_path: Path) -> None:
    made = call(tmp_path, "add", "--tenant", "team-a", "--role", "admin")
    assert made.exit_code == 0
    key = made.stdout.strip()
    (record,) = read_keys(tmp_path / KEY_FILE)
    assert (is_key_of(record, key), record.tenant, record.role) == (True, "team-a", Role.ADMIN)
    listed = call(tmp_path, "list").output
    assert re.search(rf"{record.id}  team-a  admin  \d{{4}}-\d\d-\d\d  never", listed)
    assert key not in listed
    (told,) = json.loads(call(tmp_path, "list", "--json").output)
    assert told == {"id": record.id, "tenant": "team-a", "role": "admin", "created_s": record.created_s, "ends_s": None}

    second = call(tmp_path, "rotate", record.id, "--grace-s", "60").stdout.strip()
    old, new = read_keys(tmp_path / KEY_FILE)
    assert is_key_of(new, second)
    assert (new.tenant, new.role, old.ends_s is not None) == ("team-a", Role.ADMIN, True)

    assert call(tmp_path, "revoke", new.id).exit_code == 0
    again = call(tmp_path, "revoke", new.id)
    assert again.exit_code == 2
    assert f"got {new.id}; supervisor keys list shows them" in again.output


def test_a_key_that_is_rotated_without_a_grace_ends_at_once_and_it_is_told(tmp_path: Path) -> None:
    first = key_id_of(call(tmp_path, "add", "--tenant", "a").stdout.strip())
    rotated = call(tmp_path, "rotate", first)
    assert f"{first} has ended" in rotated.stderr
    second = key_id_of(rotated.stdout.strip())
    assert "has ended" not in call(tmp_path, "rotate", second, "--grace-s", "60").stderr


def test_a_whole_key_is_revoked_and_rotated_by_its_id_and_nothing_of_its_secret_is_told(tmp_path: Path) -> None:
    first = call(tmp_path, "add", "--tenant", "a").stdout.strip()
    rotated = call(tmp_path, "rotate", first)
    second = rotated.stdout.strip()
    revoked = call(tmp_path, "revoke", second)
    assert (revoked.exit_code, revoked.stdout) == (0, f"{key_id_of(second)} is revoked\n")
    again, cut = call(tmp_path, "revoke", second), call(tmp_path, "rotate", second[:-1])
    assert (again.exit_code, f"got {key_id_of(second)};" in again.output) == (2, True)
    assert (cut.exit_code, f"got {second[:12]}...;" in cut.output) == (2, True)
    told = f"{rotated.stderr}{revoked.output}{again.output}{cut.output}{(tmp_path / AUDIT_FILE).read_text()}"
    assert not [secret for secret in (first[16:], second[16:-1]) if secret in told]


def test_a_wrong_name_or_file_is_told(tmp_path: Path) -> None:
    bad = call(tmp_path, "add", "--tenant", "a b")
    assert (bad.exit_code, "tenant: expected 1 to 64 letters" in bad.output) == (2, True)
    (tmp_path / KEY_FILE).write_text("damaged")
    for arguments in (("list",), ("add", "--tenant", "a")):
        bad = call(tmp_path, *arguments)
        assert (bad.exit_code, "expected a file of API keys" in bad.output) == (2, True)


def test_ended_keys_are_listed_for_a_month() -> None:
    record = new_key("a", Role.USER, 0.0)[1]
    ended = with_ended([record], record.id, 100.0)
    assert [one.ends_s for one in ended] == [100.0]
    _, kept = with_new(ended, "b", Role.USER, 29 * DAY_S)
    assert len(kept) == 2
    _, kept = with_new(ended, "b", Role.USER, 31 * DAY_S)
    assert [one.tenant for one in kept] == ["b"]


def test_a_key_never_lives_longer_by_a_second_rotation() -> None:
    record = msgspec.structs.replace(new_key("a", Role.USER, 0.0)[1], ends_s=150.0)
    _, keys = with_rotated([record], record.id, 100.0, grace_s=1000.0)
    assert keys[0].ends_s == 150.0
    with pytest.raises(UnknownKey):
        with_rotated(keys, record.id, 150.0, grace_s=0.0)


def test_changes_of_keys_have_lines_without_secrets(tmp_path: Path) -> None:
    key = call(tmp_path, "add", "--tenant", "team-a").stdout.strip()
    (record,) = read_keys(tmp_path / KEY_FILE)
    second = call(tmp_path, "rotate", record.id, "--grace-s", "60").stdout.strip()
    call(tmp_path, "revoke", key_id_of(second))
    call(tmp_path, "list")
    text = (tmp_path / AUDIT_FILE).read_text()
    lines = [msgspec.json.decode(line, type=AuditRecord) for line in text.splitlines()]
    assert [(one.action, one.parameters) for one in lines] == [
        ("keys add", {"tenant": "team-a", "role": "user", "new_key": record.id}),
        ("keys rotate", {"key": record.id, "grace_s": 60.0, "new_key": key_id_of(second)}),
        ("keys revoke", {"key": key_id_of(second)}),
    ]
    assert key not in text
    assert second not in text


def test_the_public_key_for_zeromq_stays_the_same(tmp_path: Path) -> None:
    first = call(tmp_path, "zeromq")
    assert (first.exit_code, len(first.stdout.strip())) == (0, 40)
    assert call(tmp_path, "zeromq").stdout == first.stdout
    (tmp_path / CURVE_KEY_FILE).write_text("damaged")
    bad = call(tmp_path, "zeromq")
    assert (bad.exit_code, "expected the ZeroMQ keys of a server" in bad.output) == (2, True)
