"""The policies of tenants: which one counts, and the file of those that were set while a server runs."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from messages.access import audit_log, private_file, tenant_file
from messages.access.audit_log import AuditRecord, Door, append_audit, utc_text
from messages.access.private_file import changing
from messages.access.tenant_file import TenantBook, change_tenants, read_tenants
from messages.access.tenant_policy import NO_POLICY, TenantPolicy, policy_in
from messages.errors import ConfigError

ACME, ALL = TenantPolicy(weight=2.0, max_sequences=3), TenantPolicy(requests_per_min=5)


def test_a_tenant_without_a_policy_has_that_of_all_others() -> None:
    assert policy_in({"acme": ACME, "default": ALL}, "acme") == ACME
    assert policy_in({"acme": ACME, "default": ALL}, "you") == ALL
    assert policy_in({"acme": ACME}, "you") == NO_POLICY
    assert (ACME.is_limited, ALL.is_limited, NO_POLICY.is_limited) == (True, True, False)


def test_a_client_can_only_let_its_requests_run_later_than_its_tenant_may() -> None:
    assert [NO_POLICY.priority_for(asked) for asked in (-5, 0, 5)] == [-5, 0, 5]
    limited = TenantPolicy(priority=10)
    assert [limited.priority_for(asked) for asked in (-5, 0, 5, 95)] == [10, 10, 15, 100]


def test_what_is_set_wins_over_the_configuration_until_it_is_removed(tmp_path: Path) -> None:
    book = TenantBook({"acme": ALL}, tmp_path / "state" / "tenants.json")
    other = TenantBook({"acme": ALL}, tmp_path / "state" / "tenants.json")
    book.change(lambda found: {**found, "acme": ACME})
    assert (book.policy_of("acme"), other.policy_of("acme")) == (ACME, ALL)
    other.refresh()
    assert other.policy_of("acme") == ACME
    book.change(lambda found: {})
    assert book.policy_of("acme") == ALL


def test_a_file_that_cannot_be_read_leaves_the_policies_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "tenants.json"
    change_tenants(path, lambda found: {"acme": ACME})
    book = TenantBook({}, path)
    for content, said in ((b"{", "file of tenants"), (b'{"version": 9, "tenants": {}}', "expected version 1, got 9")):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=said):
            read_tenants(path)
        book.refresh()
        assert book.policy_of("acme") == ACME
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="only its owner may write"):
        read_tenants(path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_all_that_root_makes_belongs_to_the_owner_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(tmp_path, 65_534, 65_534)
    change_tenants(tmp_path / "tenants.json", lambda found: {"acme": ACME})
    monkeypatch.setattr(audit_log, "MOST_BYTES", 100)
    for _ in range(2):
        append_audit(tmp_path / "audit.log", AuditRecord(utc_text(0.0), Door.COMMAND, "tenants set", "done"))
    owners = {file.name: file.stat().st_uid for file in tmp_path.iterdir()}
    names = ("tenants.json", "tenants.lock", "audit.log", "audit.log.1", "audit.lock")
    assert owners == dict.fromkeys(names, 65_534), "or the server's user could never change them again"


def test_a_file_names_tenants_and_keys_that_exist_and_not_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tenants.json"
    for tenants in ({"a b": {}}, {"a": {"wieght": 1}}, {"a": {"weight": 0}}):
        path.write_bytes(msgspec.json.encode({"version": 1, "tenants": tenants}))
        with pytest.raises(ConfigError):
            read_tenants(path)
    path.unlink()
    monkeypatch.setattr(tenant_file, "MOST_TENANTS", 1)
    with pytest.raises(ConfigError, match="at most 1 tenants, got 2"):
        change_tenants(path, lambda found: {"a": ACME, "b": ACME})
    assert read_tenants(path) == {}


def test_a_process_that_never_ends_its_change_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tenants.json"
    change_tenants(path, lambda found: {"acme": ACME})
    monkeypatch.setattr(private_file, "_LOCK_S", 0.01)
    with changing(path), pytest.raises(TimeoutError, match=r"another process has been changing it for 0\.01 s"):
        change_tenants(path, lambda found: {})
    assert read_tenants(path) == {"acme": ACME}
    change_tenants(path, lambda found: {})
    assert read_tenants(path) == {}


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_the_file_is_refused_and_nobody_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "tenants.json"
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigError, match="file of tenants"):
        read_tenants(path)
