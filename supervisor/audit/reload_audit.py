"""Lines of the audit log for reloads of the configuration by SIGHUP. A thread writes them: the supervisor never waits for a
disk."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from messages.access.audit_log import AuditRecord, Door, append_audit, utc_text

_MOST_WAITING = 16  # lines that a disk which hangs keeps waiting; later ones are in the server's log alone
_MOST_NAMES = 40  # keys that one line names
_ACTION, _ROLE = "reload", "operator"


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The keys of the configuration that differ, as "tenants.acme.weight", without values; at most 40, then how many more."""
    was, is_now = dict(_flat(before)), dict(_flat(after))
    others = sorted(name for name in was.keys() | is_now.keys() if was.get(name) != is_now.get(name))
    # a table that was empty, or is so now, is a key of its own there
    names = [name for name in others if not any(other.startswith(f"{name}.") for other in others)]
    more = len(names) - _MOST_NAMES
    return names if more <= 0 else [*names[:_MOST_NAMES], f"and {more} more"]


def without_values(reason: str) -> str:
    """The text of a refusal with only the keys of those lines that name one: their values may be secrets."""
    return "; ".join(line.strip().partition(": ")[0].rstrip(":") for line in reason.splitlines())


class ReloadAudit:
    """The audit log of one supervisor. `path` None: there is none. Whoever sends a signal stays unknown: it is the user of the
    server, or root."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._thread = path, threading.Thread(target=self._write, name="audit", daemon=True)
        self._waiting: queue.Queue[AuditRecord] = queue.Queue(_MOST_WAITING)

    def note(self, *, refusal: str = "", **parameters: list[str]) -> None:
        """Write a line about a reload that was refused with this text, or begun. Empty parameters are left out."""
        if self._path is None:
            return
        told = {name: value for name, value in parameters.items() if value}
        result, detail = ("refused", without_values(refusal)) if refusal else ("done", "")
        record = AuditRecord(utc_text(time.time()), Door.SIGNAL, _ACTION, result, _ROLE, parameters=told, detail=detail)
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            _log_lost(self._path, record, "too many lines wait for the disk")
        if self._thread.ident is None:
            self._thread.start()

    def wait_written(self) -> None:
        """Until every line is on the disk, or was logged as one that is not."""
        self._waiting.join()

    def _write(self) -> None:
        assert self._path is not None, "only then lines come"
        while True:
            record = self._waiting.get()
            try:
                append_audit(self._path, record)
            except OSError as error:
                _log_lost(self._path, record, error.strerror or str(error))
            finally:
                self._waiting.task_done()


def _log_lost(path: Path, record: AuditRecord, reason: str) -> None:
    line = msgspec.to_builtins(record)
    structlog.get_logger().error("audit log not written", reason=reason, path=str(path), record=line)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if value and isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
