"""Lines about reloads: what differs by name, no values, and a disk that hangs or refuses."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from messages.access.audit_log import AUDIT_FILE, AuditRecord
from supervisor.audit import reload_audit
from supervisor.audit.reload_audit import ReloadAudit, changed_keys, without_values


def test_keys_that_differ_are_named_once() -> None:
    before = {"tenants": {"gone": {"weight": 2.0}, "a": {"weight": 1.5}}, "port": 1, "gateway": {}}
    after = {"tenants": {"new": {}, "a": {"weight": 1.5, "max_sequences": 2}}, "port": 2, "gateway": {}}
    assert changed_keys(before, after) == ["port", "tenants.a.max_sequences", "tenants.gone.weight", "tenants.new"]
    assert changed_keys({"tenants": {}}, {"tenants": {"a": {"weight": 2.0}}}) == ["tenants.a.weight"]
    assert changed_keys(before, before) == []


def test_many_keys_have_room_in_a_line(tmp_path: Path) -> None:
    tenants = {f"{'t' * 60}-{number:03}": {"tokens_per_day": number + 1} for number in range(100)}
    names = changed_keys({}, {"tenants": tenants})
    assert (len(names), names[-1]) == (41, "and 60 more")
    audit = ReloadAudit(tmp_path / AUDIT_FILE)
    audit.note(changed=names, replaced=[])
    audit.wait_written()
    assert msgspec.json.decode((tmp_path / AUDIT_FILE).read_bytes(), type=AuditRecord).parameters == {"changed": names}


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("observability.traces_endpoint: expected a URL, got 'http://me:secret@host'", "observability.traces_endpoint"),
        ("the configuration has 2 errors:\n  a.b: got 1\n  c: got 2", "the configuration has 2 errors; a.b; c"),
        ("expected a server that serves, got one that is degraded", "expected a server that serves, got one that is degraded"),
    ],
)
def test_a_refusal_has_no_values(reason: str, told: str) -> None:
    assert without_values(reason) == told


def test_a_line_that_the_disk_refuses_is_in_the_log(tmp_path: Path) -> None:
    audit = ReloadAudit(tmp_path / "none" / AUDIT_FILE)
    with capture_logs() as lines:
        audit.note(changed=["port"])
        audit.wait_written()
    assert [(line["event"], line["record"]["parameters"]) for line in lines] == [
        ("audit log not written", {"changed": ["port"]})
    ]


def test_a_disk_that_hangs_holds_nobody_up_and_keeps_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_end, written = threading.Event(), threading.Event(), list[AuditRecord]()

    def hang(path: Path, record: AuditRecord) -> None:
        has_begun.set()
        may_end.wait()
        written.append(record)

    monkeypatch.setattr(reload_audit, "append_audit", hang)
    audit = ReloadAudit(tmp_path / AUDIT_FILE)
    with capture_logs() as lines:
        audit.note(changed=["first"])
        assert has_begun.wait(60.0)
        for number in range(20):
            audit.note(changed=[str(number)])
    assert [line["reason"] for line in lines] == ["too many lines wait for the disk"] * 4
    may_end.set()
    audit.wait_written()
    assert [record.parameters["changed"] for record in written] == [["first"], *([str(number)] for number in range(16))]
