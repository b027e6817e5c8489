"""Where a running server says that its log file is."""

from __future__ import annotations

from pathlib import Path

import msgspec

from messages.log_file.rotated_file import NO_LOG_FILE, LogFile
from supervisor.directories.run_dir_files import SERVER


class _LogPlace(msgspec.Struct):
    """What a running server says of its log file in its run directory."""

    log_file: LogFile = NO_LOG_FILE


def log_file_of(run_dir: Path) -> Path | None:
    """The path of the log file of the server in a run directory; None if it does not run, or keeps none."""
    try:
        path = msgspec.json.decode((run_dir / SERVER).read_bytes(), type=_LogPlace).log_file.path
    except (OSError, msgspec.MsgspecError):
        return None
    return Path(path) if path else None
