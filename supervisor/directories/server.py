"""What one run of the server consists of, determined before its first child is started, and kept for the next supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from messages.lifecycle.spawn_spec import SpawnSpec
from messages.log_file.rotated_file import NO_LOG_FILE, LogFile
from supervisor.config.server_config import SupervisorSettings
from supervisor.directories.atomic_file import AtomicFile
from supervisor.directories.run_dir import RunDir
from supervisor.directories.state_dir import StateDir
from supervisor.parent.memory_copy import read_newest
from supervisor.policy.child_spec import Group


@dataclass(frozen=True)
class StartInputs:
    """From what a server was determined, so that it can be determined again with new settings."""

    flags: dict[str, Any]  # of `supervisor start`
    config: dict[str, Any]  # the whole configuration that they and the file gave
    facts: dict[str, Any]  # `StartFacts`


@dataclass(frozen=True)
class Server:
    """Everything that `supervisor start` has determined, and the directories that it holds. `groups` are in start order;
    `url` is where HTTP clients connect."""

    groups: tuple[Group, ...]
    run_dir: RunDir
    settings: SupervisorSettings
    model_name: str
    url: str
    log_format: str
    log_level: str
    layout: str = ""  # replicas, ranks, devices and dtype as text, for the status
    takes_text: bool = True  # False for a model without a tokenizer
    takes_chat: bool = True  # False for a model without a chat template
    keys_dir: str = ""  # where the file of API keys is; "": clients need none
    audit_file: str = ""  # for lines about commands of operators; "": none
    tls_flags: str = ""  # with which curl reaches it; "": plain HTTP
    zeromq_tcp: str = ""  # where its first gateway listens for ZeroMQ clients over TCP; "": it does not
    state_dir: StateDir | None = None  # None: another release's, or a test's; nobody makes it again
    is_temporary: bool = False  # its run directory was made for a random port
    log_file: LogFile = NO_LOG_FILE
    origin: StartInputs | None = None  # None: a rolling restart keeps all settings

    def spawn_spec_template(self, incarnation: int) -> SpawnSpec:
        """The fields that every spawn spec of this server has in common. `incarnation` is the supervisor's."""
        return SpawnSpec(
            name="",
            incarnation=0,
            endpoint="",
            supervisor_endpoint=self.run_dir.supervisor_endpoint,
            supervisor_incarnation=incarnation,
            orphan_s=self.settings.orphan_s,
            run_dir=str(self.run_dir.path),
            log_format=self.log_format,
            log_level=self.log_level,
            settings=msgspec.Raw(b"{}"),
            beat_s=self.settings.beat_s,
            log_file=self.log_file,
        )

    def save(self) -> None:
        """Write all of this into the run directory."""
        AtomicFile(self.run_dir.server_path).write(self.encoded())

    def encoded(self) -> bytes:
        """All of this but the directories as JSON."""
        return msgspec.json.encode(_Saved(**{name: getattr(self, name) for name in _Saved.__struct_fields__}))


def read_server(run_dir: RunDir, descriptors: Mapping[str, int] | None = None) -> Server:
    """The server of a supervisor that died, or runs. `descriptors` as for `decode_server`.

    Raises: OSError, msgspec.DecodeError.
    """
    return _read(run_dir, run_dir.server_path, descriptors)


def read_next_server(run_dir: RunDir, descriptors: Mapping[str, int]) -> Server:
    """What the server will consist of after the rolling restart that is under way. `descriptors` as for `decode_server`.

    Raises: OSError, msgspec.DecodeError.
    """
    return _read(run_dir, run_dir.next_server_path, descriptors)


def _read(run_dir: RunDir, path: Path, descriptors: Mapping[str, int] | None) -> Server:
    def decode(encoded: bytes) -> Server | None:
        with suppress(msgspec.DecodeError, KeyError):
            return decode_server(run_dir, encoded, descriptors)
        return None

    return read_newest(path, decode) or decode_server(run_dir, path.read_bytes(), descriptors)


def decode_server(run_dir: RunDir, encoded: bytes, descriptors: Mapping[str, int] | None = None) -> Server:
    """What `Server.encoded` made. `descriptors`: the numbers that those of children have in this process; None: unchanged.

    Raises: msgspec.DecodeError.
    """
    saved = msgspec.json.decode(encoded, type=_Saved)
    values = {name: getattr(saved, name) for name in _Saved.__struct_fields__}
    server = Server(**values, run_dir=run_dir)
    if descriptors is None:
        return server
    return replace(server, groups=tuple(with_descriptors(group, descriptors) for group in server.groups))


def as_json(struct: msgspec.Struct) -> dict[str, Any]:
    """A struct as it is read from JSON."""
    return msgspec.json.decode(msgspec.json.encode(struct))


def half_restarted(present: tuple[Group, ...], target: tuple[Group, ...]) -> tuple[Group, ...]:
    """The groups during a rolling restart: as they will be, with the children as they are now."""
    children = {group.title: group.children for group in present}
    return tuple(replace(group, children=children.get(group.title, group.children)) for group in target)


def with_descriptors(group: Group, descriptors: Mapping[str, int]) -> Group:
    """The same group with the numbers that its descriptors have in this process. Raises: KeyError for a name without one."""
    children = tuple(
        replace(child, descriptors={name: descriptors[name] for name in child.descriptors}) for child in group.children
    )
    return replace(group, children=children)


_hints = get_type_hints(Server)
_Saved = msgspec.defstruct(  # a field with a default may be missing in what another release has written
    "_Saved",
    [
        (f.name, _hints[f.name]) if f.default is MISSING else (f.name, _hints[f.name], f.default)
        for f in fields(Server)
        if f.name not in ("run_dir", "state_dir")
    ],
    frozen=True,
)
