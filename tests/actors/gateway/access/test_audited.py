"""Calls that need the role admin have lines in the audit log: who, what, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.gateway.access import audited
from actors.gateway.access.audited import Audit, shown_parameters
from actors.gateway.requests.refusals import Refusal
from messages.access.api_key import Role, key_id_of, new_key
from messages.access.audit_log import AuditRecord, Door
from messages.access.key_file import change_keys
from messages.client import AsyncClient
from messages.errors import InvalidRequest
from tests.support.gateway.gateway_rig import rig

RESET = "/v1/cache/reset"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def lines_of(log: Path) -> list[AuditRecord]:
    if not log.exists():
        return []
    return [msgspec.json.decode(line, type=AuditRecord) for line in log.read_bytes().splitlines()]


def log_text(log: Path) -> str:
    return log.read_text()


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def keys_in(folder: Path) -> tuple[str, str, dict[str, Any]]:
    """The keys of a user and an admin, and the settings."""
    made = [new_key(tenant, role, 1.0) for tenant, role in (("me", Role.USER), ("you", Role.ADMIN))]
    change_keys(folder / "keys.json", lambda keys: [record for _, record in made])
    return made[0][0], made[1][0], {"keys_file": str(folder / "keys.json")}


async def test_resets_over_http_name_key_and_tenant_and_no_prompt(log: Path, tmp_path: Path) -> None:
    mine, yours, settings = keys_in(tmp_path)
    async with rig(audit_file=str(log), **settings) as r, r.http() as http:
        body = {"prompt": "a secret prompt", "older_than_s": 5, "caller": "me"}
        for key, status in ((mine, 403), (yours, 200), ("wrong", 401)):
            answer = await http.post(RESET, json=body, headers={"x-api-key": key})
            assert answer.status_code == status
        assert (await http.post(RESET, json={"unknown": 1}, headers={"x-api-key": yours})).status_code == 400
        await http.get("/v1/models", headers={"x-api-key": yours})
    refused, done, wrong = lines_of(log)
    shown = {"prompt": "given", "older_than_s": 5, "caller": "me"}
    assert (refused.result, refused.role, refused.tenant, refused.parameters) == ("operator_only", "user", "me", shown)
    assert (done.result, done.role, done.tenant, done.key) == ("done", "admin", "you", key_id_of(yours))
    assert (done.door, done.action, done.address) == (Door.HTTP, f"POST {RESET}", "127.0.0.1")
    assert wrong.result == "invalid"
    text = log_text(log)
    assert not any(secret in text for secret in ("secret prompt", mine, yours))


async def test_the_operators_key_is_an_operator(log: Path) -> None:
    async with rig(audit_file=str(log), operator_key="open", caller_header="authorization") as r, r.http() as http:
        answer = await http.post(RESET, json={"caller": "Bearer secret"}, headers={"x-operator-key": "open"})
        assert answer.status_code == 200
    (line,) = lines_of(log)
    assert (line.role, line.tenant, line.result, line.parameters) == ("operator", "", "done", {"caller": "given"})


async def test_resets_over_zeromq_have_lines_too(log: Path, tmp_path: Path) -> None:
    mine, yours, settings = keys_in(tmp_path)
    place: dict[str, Any] = {"zeromq_endpoint": f"ipc://{tmp_path}/zeromq-0", "zeromq_tcp_endpoint": "tcp://127.0.0.1:*"}
    async with rig(audit_file=str(log), **settings, **place) as r:
        assert r.gateway.servers.zeromq is not None
        tcp = r.gateway.servers.zeromq._socket._socket.get_string(32)  # ZMQ_LAST_ENDPOINT
        async with AsyncClient(tcp, api_key=yours) as client:
            await client.reset_cache(older_than_s=5)
        async with AsyncClient(tcp, api_key=mine) as client:
            with pytest.raises(InvalidRequest):
                await client.reset_cache()
        async with AsyncClient(place["zeromq_endpoint"]) as client:
            await client.reset_cache()
    done, refused, own = lines_of(log)
    assert (done.door, done.action, done.result) == (Door.ZEROMQ, "CacheResetWanted", "done")
    assert (done.role, done.tenant, done.address, done.parameters) == ("admin", "you", "127.0.0.1", {"older_than_s": 5})
    assert (refused.result, refused.role, refused.tenant) == ("operator_only", "user", "me")
    assert (own.result, own.role, own.address) == ("done", "operator", "")


async def test_without_a_file_nothing_is_written(tmp_path: Path) -> None:
    async with rig(operator_key="open") as r, r.http() as http:
        assert (await http.post(RESET, json={}, headers={"x-operator-key": "open"})).status_code == 200
    assert files_in(tmp_path) == []


async def test_a_log_that_cannot_be_written_stops_no_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with rig(operator_key="open", audit_file=str(tmp_path / "gone" / "audit.log")) as r, r.http() as http:
        assert (await http.post(RESET, json={}, headers={"x-operator-key": "open"})).status_code == 200
    assert "audit log not written" in capsys.readouterr().out


async def refuse() -> None:
    raise Refusal("operator_only", "no")


async def test_a_flood_of_refused_calls_displaces_nothing(log: Path) -> None:
    now_s = [1000.0]
    audit = Audit(log, lambda: now_s[0])
    record = audit.record(Door.HTTP, f"POST {RESET}", "10.0.0.1", None, {})
    for _ in range(500):
        with pytest.raises(Refusal):
            await audit.around(record, refuse)
    assert len(lines_of(log)) == audited._REFUSED_AT_ONCE
    now_s[0] += audited._REFUSED_EVERY_S
    with pytest.raises(Refusal):
        await audit.around(record, refuse)
    assert lines_of(log)[-1].detail == "490 refused calls before it have no line"
    now_s[0] -= 1e6  # a clock that is set back opens and closes nothing
    with pytest.raises(Refusal):
        await audit.around(record, refuse)
    assert len(lines_of(log)) == audited._REFUSED_AT_ONCE + 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", {}),
        (b"[1]", {}),
        (b"no json", {}),
        (b'{"older_than_s": 1.5, "model": "m", "prompt": "p"}', {"older_than_s": 1.5, "model": "m", "prompt": "given"}),
        (b'{"model": {"a": "secret"}}', {"model": "given"}),
        (b'{"model": "' + b"x" * 500 + b'"}', {"model": "x" * 120}),
    ],
)
def test_parameters_are_shown_without_secrets(body: bytes, expected: dict[str, Any]) -> None:
    assert shown_parameters(body, frozenset({"older_than_s", "model"})) == expected
