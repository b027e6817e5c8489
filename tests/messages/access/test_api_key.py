"""API keys: their text, what is kept of them, and their file."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import msgspec
import pytest

from messages.access.api_key import KeyRecord, Role, is_key_of, key_id_of, new_key
from messages.access.key_file import change_keys, read_keys
from messages.errors import ConfigError


def test_a_key_belongs_to_its_record_and_to_no_other() -> None:
    text, record = new_key("team-a", Role.USER, 100.0)
    other, _ = new_key("team-a", Role.USER, 100.0)
    assert (key_id_of(text), record.tenant, record.role) == (record.id, "team-a", Role.USER)
    assert is_key_of(record, text)
    assert not is_key_of(record, other)
    assert not is_key_of(record, text[:-1] + ("A" if text[-1] != "A" else "B"))


def test_nothing_of_the_secret_is_kept() -> None:
    text, record = new_key("team-a", Role.ADMIN, 100.0)
    secret = text.split("-", 2)[2]
    assert secret not in msgspec.json.encode(record).decode()


@pytest.mark.parametrize("text", ["", "sk-1234", "tg-0123456789ab", "tg-0123456789ab-short", "tg-0123456789AB-" + "a" * 43])
def test_what_is_no_key_has_no_id(text: str) -> None:
    assert key_id_of(text) == ""


@pytest.mark.parametrize("tenant", ["", "a b", "x" * 65, "a/b", "ä"])
def test_a_tenant_has_a_plain_name(tenant: str) -> None:
    with pytest.raises(ValueError, match="tenant: expected 1 to 64 letters"):
        new_key(tenant, Role.USER, 0.0)


def test_a_key_may_end() -> None:
    record = msgspec.structs.replace(new_key("a", Role.USER, 0.0)[1], ends_s=10.0)
    assert (record.is_valid(9.9), record.is_valid(10.0)) == (True, False)


def test_the_file_has_what_was_written_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "api-keys.json"
    assert read_keys(path) == ()
    record = new_key("a", Role.USER, 1.0)[1]
    change_keys(path, lambda keys: [*keys, record])
    assert read_keys(path) == (record,)
    assert path.stat().st_mode & 0o777 == 0o600


def test_commands_at_the_same_time_lose_no_key(tmp_path: Path) -> None:
    path = tmp_path / "api-keys.json"

    def add() -> None:
        for _ in range(5):
            change_keys(path, lambda keys: [*keys, new_key("a", Role.USER, 1.0)[1]])

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert len(read_keys(path)) == 20


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "api-keys.json"
    change_keys(path, lambda keys: keys)
    path.chmod(0o620)
    with pytest.raises(ConfigError, match="only its owner may write"):
        read_keys(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"not json", "expected a file of API keys"),
        (b'{"version": 2, "keys": []}', "expected version 1, got 2"),
        (b'{"version": 1, "keys": [{"id": "0123456789ab"}]}', "tenant"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "api-keys.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=why):
        read_keys(path)


def test_a_change_that_fails_leaves_the_file(tmp_path: Path) -> None:
    path, record = tmp_path / "api-keys.json", new_key("a", Role.USER, 1.0)[1]
    change_keys(path, lambda keys: [record])

    def fail(keys: tuple[KeyRecord, ...]) -> list[KeyRecord]:
        raise ValueError("of the test")

    with pytest.raises(ValueError, match="of the test"):
        change_keys(path, fail)
    assert read_keys(path) == (record,)
    assert json.loads(path.read_bytes())["version"] == 1
