"""Lines of the audit log for what operators do with commands: to keys, and to the whole server. The command itself writes them,
so that the supervisor never waits for a disk."""

from __future__ import annotations

import getpass
import os
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from messages.access.audit_log import AuditRecord, Door, append_audit, utc_text
from supervisor.directories.run_dir_files import SERVER


class _AuditFile(msgspec.Struct):
    """What a running server says of its audit log in its run directory."""

    audit_file: str = ""


def audit_file_of(run_dir: Path) -> Path | None:
    """Where the server in a run directory keeps its audit log; None if it keeps none."""
    try:
        path = msgspec.json.decode((run_dir / SERVER).read_bytes(), type=_AuditFile).audit_file
    except (OSError, msgspec.MsgspecError):  # it ends already, or is of another release
        return None
    return Path(path) if path else None


def write_command(path: Path | None, action: str, refusal: str = "", **parameters: Any) -> None:
    """Write a line about a command of this user, which was refused with this text, or done. `path` None: nothing is written. A
    failure is said on standard error: what has been done stays."""
    if path is None:
        return
    at, result = utc_text(time.time()), "refused" if refusal else "done"
    record = AuditRecord(at, Door.COMMAND, action, result, "operator", user=_user(), parameters=parameters, detail=refusal)
    try:
        append_audit(path, record)
    except OSError as error:
        click.echo(f"supervisor: {path}: not written: {error.strerror}", err=True)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # there is no name for this number
        return str(os.getuid())
