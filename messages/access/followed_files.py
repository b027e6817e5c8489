"""Files that a process reads again when they change, and tries again when it could not read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from messages.access.private_file import FileRefused, Signature, signature_of
from messages.errors import ConfigError


class FollowedFiles:
    """Whether some files must be read now, and which failures of that were not said yet."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._seen: list[Signature] | None = None  # None: to be read in any case
        self._said = ""

    def are_due(self) -> bool:
        """True the first time, after each change, and after a read that the system has refused."""
        seen = [signature_of(path) for path in self._paths]
        if seen == self._seen:
            return False
        self._seen = seen
        return True

    def were_read(self) -> None:
        """They could be used: the next failure is new."""
        self._said = ""

    def were_not_read(self, error: ConfigError) -> bool:
        """They could not be used. What the system has refused (no free descriptor, an error of the disk, a permission) is tried
        again without a change of the files. Returns True unless the same was said before."""
        if isinstance(error, FileRefused):
            self._seen = None
        is_new, self._said = str(error) != self._said, str(error)
        return is_new
