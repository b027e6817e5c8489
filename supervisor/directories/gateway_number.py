"""How many gateways use the journals of a state directory, and whether that number has changed of late.

The owner of a request's id depends on the number, and requests stay in the journals where they are. After a change, gateways
therefore ask each other for ids that they do not know, until all requests from before it are forgotten. Requests age by the
journals' clock, so this time is counted by that clock too: neither a jump of the wall clock nor hours without power end it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import msgspec

from actors.gateway.journal.clock import since_boot_s
from messages.ids import boot_id
from supervisor.directories.atomic_file import AtomicFile

GATEWAYS_FILE = "gateways.json"
_JOURNALS = "journal-*"


@dataclass(frozen=True)
class StartTime:
    """When a server starts: Unix time, the id of the machine's boot, and the seconds of the kernel's clock since that."""

    wall_s: float
    boot: str
    boot_s: float

    @classmethod
    def now(cls) -> StartTime:
        """The present time."""
        return cls(time.time(), boot_id(), since_boot_s())


class _Gateways(msgspec.Struct, frozen=True):
    """The content of the file. The last release knows the first two fields alone."""

    number: int
    changed_s: float = 0.0  # the Unix time since when it is this number; 0: since the first start
    passed_s: float = 0.0  # seconds that had passed since the change when this was written
    boot: str = ""
    written_s: float = 0.0  # by the kernel's clock since that boot
    checksum: int = 0  # of the other fields


def note_gateways(path: Path, gateways: int, keep_s: float, start: StartTime) -> bool:
    """Note that a server with so many gateways uses the journals in `path`; returns whether the number may have changed less
    than `keep_s` seconds ago. After this time all requests from before a change are forgotten.

    Journals whose number of gateways nobody can read count as those of another number.
    """
    file = path / GATEWAYS_FILE
    before = _read(file)
    if before is None and not any(path.glob(_JOURNALS)):
        changed_s, passed_s = 0.0, 0.0  # a first start
    elif before is None or before.number != gateways:
        changed_s, passed_s = start.wall_s, 0.0
    else:
        changed_s, passed_s = before.changed_s, _passed_s(before, start)
    now = _Gateways(gateways, changed_s, passed_s, start.boot, start.boot_s)
    AtomicFile(file).write(msgspec.json.encode(msgspec.structs.replace(now, checksum=_checksum(now))))
    return changed_s > 0.0 and passed_s <= keep_s


def _read(file: Path) -> _Gateways | None:
    """The content of the file; None if there is none, or it is damaged."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_Gateways)
    except (OSError, ValueError):
        return None
    is_of_last_release = found == _Gateways(found.number, found.changed_s)
    return found if is_of_last_release or found.checksum == _checksum(found) else None


def _passed_s(before: _Gateways, start: StartTime) -> float:
    """Seconds since the change. As in the journals, time is not counted while the machine was off, because nobody knows how
    long that was. Where there is no id of the boot, the wall clock has to do."""
    if not before.boot:
        return abs(start.wall_s - before.changed_s)
    is_same_boot = before.boot == start.boot and start.boot_s >= before.written_s
    return before.passed_s + (start.boot_s - before.written_s if is_same_boot else 0.0)


def _checksum(found: _Gateways) -> int:
    return crc32(msgspec.json.encode(msgspec.structs.replace(found, checksum=0)))
