"""The files for other programs of a host: where they are, and how they are written out.

In a wheel they lie beside this file; `setup.py` puts them there. In a checkout they are those of `ops/`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from messages.errors import ConfigError
from messages.release import PACKAGE, release_version

_IN_WHEEL = Path(__file__).parent / "ops"
_IN_CHECKOUT = Path(__file__).parents[2] / "ops"
_NOT_FOR_OPERATORS = ("bench", "gpu")  # data and scripts of measurements, which no wheel has
_RUN_BY_THE_IMAGE = "docker/trim.py"  # the only file of Python there
_UNIT = ".service"
_PROGRAMS = "/opt/tardigrade/.venv/bin/"  # in the units; replaced by the place of this installation
_COMPOSE = "compose/compose.yaml"
_BUILD_IN_CHECKOUT = "context: ../..\n      dockerfile: ops/docker/Dockerfile\n"  # replaced by the image of this release
_BUILD_OF_RELEASE = "context: ../docker\n      args:\n        PACKAGE: {package}=={version}\n"


@dataclass(frozen=True)
class HostFile:
    """One file. `path`: where it is; `name`: relative to all of them, such as systemd/tardigrade.service."""

    path: Path
    name: str

    @property
    def room(self) -> str:
        """For which program it is: the first part of its name."""
        return self.name.partition("/")[0]

    def content(self) -> bytes:
        """What to write: the file; of a unit, with the path of this installation's programs; of the server for Compose, with an
        image that pip makes of this release, because no checkout is there."""
        content = self.path.read_bytes()
        if self.path.suffix == _UNIT:
            return content.replace(_PROGRAMS.encode(), f"{Path(sys.executable).parent}/".encode())
        if self.name == _COMPOSE:
            build = _BUILD_OF_RELEASE.format(package=PACKAGE, version=release_version())
            return content.replace(_BUILD_IN_CHECKOUT.encode(), build.encode()).replace(b"-f ops/compose/", b"-f compose/")
        return content


def host_files(rooms: Iterable[str] = ()) -> list[HostFile]:
    """The files of these rooms, or all; sorted by name. Raises: ConfigError for a room that does not exist."""
    root = _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_CHECKOUT
    found = [HostFile(path, path.relative_to(root).as_posix()) for path in root.rglob("*") if _is_for_operators(path, root)]
    known = sorted({file.room for file in found})
    for room in rooms:
        if room not in known:
            raise ConfigError(f"only: expected one of {', '.join(known)}, got {room}")
    return sorted((file for file in found if not rooms or file.room in rooms), key=lambda file: file.name)


def write_files(files: Iterable[HostFile], folder: Path, is_forced: bool) -> list[Path]:
    """Write them below a folder, which is made; returns those that are new or changed. Files with another content are kept, and
    nothing is written, unless `is_forced`. Raises: ConfigError, OSError."""
    wanted = {folder / file.name: file.content() for file in files}
    there = {path: path.read_bytes() if path.is_file() else None for path in wanted}
    others = [str(path) for path, content in there.items() if content is not None and content != wanted[path]]
    if others and not is_forced:
        raise ConfigError(f"expected no other files in {folder}, got {', '.join(others)}; --force writes over them")
    written = [path for path, content in wanted.items() if there[path] != content]
    for path in written:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wanted[path])
    return written


def _is_for_operators(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    is_python = path.suffix in (".py", ".pyc") or "__pycache__" in parts
    is_wanted = not is_python or "/".join(parts) == _RUN_BY_THE_IMAGE
    return path.is_file() and len(parts) > 1 and parts[0] not in _NOT_FOR_OPERATORS and is_wanted
