"""Fetches one large file over HTTP: goes on where an earlier try stopped, by Range, and checks the SHA-256 of the whole."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import httpx  # most starts need none: it takes 8 MB of each supervisor

_TIMEOUT_S = 30.0  # of a connection, and between two parts of a file
_TRIES = 6  # in a row without a new byte
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 8.0
_RETRIED = (408, 429)  # and all from 500 on: the same question may be answered later
INCOMPLETE = ".incomplete"


class TransferError(OSError):
    """A file could not be fetched; the text says why. What has come is kept for the next try, unless it is wrong."""


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server: its address, its whole size, and its SHA-256 in hexadecimal digits."""

    url: str
    n_bytes: int
    sha256: str
    headers: Mapping[str, str] = field(default_factory=dict)


def incomplete_of(target: Path) -> Path:
    """Where a file that has come in part is kept."""
    return target.with_name(f"{target.name}{INCOMPLETE}")


def fetch_file(
    file: RemoteFile,
    target: Path,
    on_bytes: Callable[[int], None],
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Bring `file` to `target`, which appears as a whole. `on_bytes`: how many more bytes are there, those of an earlier try
    included; fewer if they had to be thrown away. `is_stopped`: asked between two parts.

    Raises: TransferError.
    """
    import httpx

    partial, known = incomplete_of(target), 0

    def note(n_bytes: int) -> None:
        nonlocal known
        on_bytes(n_bytes - known)
        known = n_bytes

    n_tries = 0
    with httpx.Client(follow_redirects=True, timeout=_TIMEOUT_S) as client, partial.open("ab") as out:
        note(_trimmed(out, file.n_bytes))
        while out.tell() < file.n_bytes:
            before = out.tell()
            failure = _attempt(client, file, out, note, is_stopped)
            n_tries = 0 if out.tell() > before else n_tries + 1
            if n_tries == _TRIES:
                raise TransferError(f"{file.url}: {failure}; {out.tell()} of {file.n_bytes} bytes are here for the next try")
            if failure:
                wait(min(_FIRST_WAIT_S * 2**n_tries, _LONGEST_WAIT_S))
            if is_stopped() and failure:
                raise TransferError(f"{file.url}: stopped")
    _check(partial, file)
    os.replace(partial, target)


def _trimmed(out: BinaryIO, n_bytes: int) -> int:
    """Bytes that an earlier try has left; a file that is too long is none of this one."""
    if out.tell() > n_bytes:
        out.truncate(0)
        out.seek(0)
    return out.tell()


def _attempt(
    client: httpx.Client, file: RemoteFile, out: BinaryIO, note: Callable[[int], None], is_stopped: Callable[[], bool]
) -> str:
    """Ask for what is missing and write what comes; returns why it ended early, "" if it did not. Raises: TransferError."""
    import httpx

    have = out.tell()
    headers = {**file.headers, "Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with client.stream("GET", file.url, headers=headers) as answer:
            if answer.status_code >= 400:
                text = f"HTTP status {answer.status_code} {answer.reason_phrase}"
                if answer.status_code < 500 and answer.status_code not in _RETRIED:
                    raise TransferError(f"{file.url}: {text}")
                return text
            if have and not _goes_on(answer, have):  # the server sends it from its beginning
                out.truncate(0)
                out.seek(0)
                note(0)
            for part in answer.iter_raw():  # as they come: what waits for more would be lost at a break
                out.write(part[: file.n_bytes - out.tell()])
                note(out.tell())
                if is_stopped():
                    raise TransferError(f"{file.url}: stopped")
    except httpx.HTTPError as error:
        out.flush()
        return str(error) or type(error).__name__
    return "" if out.tell() == file.n_bytes else "the answer ended early"


def _goes_on(answer: httpx.Response, have: int) -> bool:
    return answer.status_code == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")


def _check(partial: Path, file: RemoteFile) -> None:
    with partial.open("rb") as content:
        got = hashlib.file_digest(content, "sha256").hexdigest()
    if got != file.sha256:
        partial.unlink()
        raise TransferError(f"{file.url}: expected SHA-256 {file.sha256}, got {got}; the next try begins anew")
