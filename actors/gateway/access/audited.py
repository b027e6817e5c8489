"""Calls that need the role admin, with a line of each in the audit log: who has asked for what, and what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from actors.gateway.access.key_ring import KeyHolder
from actors.gateway.bodies.operator_bodies import CordonBody
from actors.gateway.requests.refusals import Refusal
from actors.gateway.settings import GatewaySettings
from messages.access.audit_log import AuditRecord, Door, append_audit, utc_text
from messages.access.tenant_policy import TenantPolicy

_REFUSED_AT_ONCE, _REFUSED_EVERY_S = 10, 10.0  # lines of refused calls: anybody can make some, and they displace older lines
MOST_CHARACTERS = 120  # of a value that a client has chosen
_GIVEN, _OPERATOR = "given", "operator"
_SHOWN = frozenset({"older_than_s", "model", *CordonBody.__struct_fields__, *TenantPolicy.__struct_fields__})
_SHOWN_WITH_KEYS = _SHOWN | {"caller"}
T = TypeVar("T")


class Audit:
    """The audit log of one gateway. `path` None: there is none, and calls cost nothing more. `wall_s`: Unix time."""

    def __init__(self, path: Path | None, wall_s: Callable[[], float] = time.time) -> None:
        self._path, self._wall_s = path, wall_s
        self._refusals, self._since_s, self._n_left_out = float(_REFUSED_AT_ONCE), wall_s(), 0

    async def around(self, record: AuditRecord, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work of a call, and write what came of it before anybody is told. Raises: what `work` raises."""
        if self._path is None:
            return await work()
        try:
            done = await work()
        except Refusal as refusal:
            if self._has_room():
                left_out, self._n_left_out = self._n_left_out, 0
                more = f"{left_out} refused calls before it have no line" if left_out else ""
                result = refusal.fine_code or refusal.code
                await self._write(self._path, msgspec.structs.replace(record, result=result, detail=more))
            raise
        # whoever has shown no API key has shown the operator's
        await self._write(self._path, record if record.role else msgspec.structs.replace(record, role=_OPERATOR))
        return done

    def record(
        self,
        door: Door,
        action: str,
        address: str,
        holder: KeyHolder | None,
        parameters: dict[str, Any],
        *,
        is_operator: bool = False,
    ) -> AuditRecord:
        """What is known of a call before it is done. `holder`: of its API key. `is_operator`: it came through a door that is
        the user's of the machine."""
        at = utc_text(self._wall_s())
        who = {"role": _OPERATOR} if is_operator else {}
        if holder is not None:
            who = {"role": holder.role.value, "tenant": holder.tenant, "key": holder.key_id}
        return AuditRecord(at, door, action, "done", address=address, parameters=parameters, **who)

    def _has_room(self) -> bool:
        """A line for a refused call may be written now."""
        now_s = self._wall_s()
        passed_s, self._since_s = max(now_s - self._since_s, 0.0), now_s
        self._refusals = min(self._refusals + passed_s / _REFUSED_EVERY_S, float(_REFUSED_AT_ONCE))
        if self._refusals < 1.0:
            self._n_left_out += 1
            return False
        self._refusals -= 1.0
        return True

    async def _write(self, path: Path, record: AuditRecord) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, partial(append_audit, path, record))
        except OSError as error:
            line = msgspec.to_builtins(record)
            structlog.get_logger().error("audit log not written", reason=error.strerror, path=str(path), record=line)


def audit_of(settings: GatewaySettings) -> Audit:
    """The audit log that the settings name."""
    return Audit(Path(settings.audit_file) if settings.audit_file else None)


def shown_with(settings: GatewaySettings) -> frozenset[str]:
    """The fields whose values records have. Without API keys a caller is the value of a header, which may be a secret."""
    return _SHOWN_WITH_KEYS if settings.keys_file else _SHOWN


def shown_parameters(body: bytes | bytearray, shown: frozenset[str]) -> dict[str, Any]:
    """The fields of a JSON body for a record: the values of those in `shown`, and the names of the others, whose values may be
    parts of prompts or secrets."""
    try:
        fields = msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
    return {name[:MOST_CHARACTERS]: _shown(value) if name in shown else _GIVEN for name, value in fields.items()}


def _shown(value: object) -> object:
    if isinstance(value, str):
        return value[:MOST_CHARACTERS]
    return value if isinstance(value, int | float | bool) else _GIVEN
