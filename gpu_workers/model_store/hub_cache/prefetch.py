"""Fetches the large files of a model into the cache of the hub's client, which throws away what it has when it is interrupted.

The client does the rest afterwards: small files, links, revisions. It finds the large files under the names that it gives them
itself, their SHA-256.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_workers.model_store.hub_cache.cache_paths import hub_cache, repo_folder
from gpu_workers.model_store.hub_cache.resumable import RemoteFile, TransferError, fetch_file

_AT_ONCE = 4  # files
_LOCK_S = 10.0  # for another process that fetches the same file; then the client waits for it

OnBytes = Callable[[int, int], None]  # bytes that are here, of how many


def prefetch(name: str, allow: Sequence[str], ignore: Sequence[str], on_bytes: OnBytes) -> None:
    """Fetch the large files of the newest revision of `name` that the patterns let through, if they are not here.

    Raises: TransferError; the errors of the hub's client.
    """
    wanted = _large_files(name, allow, ignore)
    if not wanted:
        return
    blobs = repo_folder(name) / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    _check_room(name, blobs, sum(file.n_bytes for file in wanted))
    progress, stop = _Progress(sum(file.n_bytes for file in wanted), on_bytes), threading.Event()
    locks = hub_cache() / ".locks" / repo_folder(name).name
    locks.mkdir(parents=True, exist_ok=True)
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        for done in [pool.submit(_fetch, file, blobs, locks, progress, stop) for file in wanted]:
            done.result()
    finally:  # also after an error or Ctrl-C: then the others end at their next part, without being waited for
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _large_files(name: str, allow: Sequence[str], ignore: Sequence[str]) -> list[RemoteFile]:
    """The files of the newest revision that the hub keeps apart by their SHA-256."""
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, filter_repo_objects

    info = HfApi().model_info(name, files_metadata=True)
    files = filter_repo_objects(
        info.siblings or [], allow_patterns=list(allow), ignore_patterns=list(ignore), key=lambda file: file.rfilename
    )
    headers = build_hf_headers()
    return [
        RemoteFile(hf_hub_url(name, file.rfilename, revision=info.sha), file.lfs.size, file.lfs.sha256, headers)
        for file in files
        if file.lfs is not None
    ]


def _check_room(name: str, blobs: Path, n_bytes: int) -> None:
    n_here = sum(path.stat().st_size for path in blobs.iterdir() if path.is_file())
    free = shutil.disk_usage(blobs).free
    if n_bytes - n_here > free:
        raise TransferError(f"{name}: expected {n_bytes - n_here} bytes of room in {blobs}, got {free}")


class _Progress:
    """The sum over all files, which are fetched by several threads."""

    def __init__(self, n_bytes: int, on_bytes: OnBytes) -> None:
        self._n_bytes, self._on_bytes = n_bytes, on_bytes
        self._n_here, self._lock = 0, threading.Lock()

    def add(self, n_bytes: int) -> None:
        """So many bytes have come; fewer than none if they were thrown away."""
        with self._lock:
            self._n_here += n_bytes
            self._on_bytes(self._n_here, self._n_bytes)


def _fetch(file: RemoteFile, blobs: Path, locks: Path, progress: _Progress, stop: threading.Event) -> None:
    from filelock import FileLock, Timeout

    target = blobs / file.sha256
    try:
        with FileLock(locks / f"{file.sha256}.lock", timeout=_LOCK_S):  # the client's own lock of this file
            if target.is_file():
                progress.add(file.n_bytes)
            elif not stop.is_set():
                fetch_file(file, target, progress.add, is_stopped=stop.is_set, wait=stop.wait)
    except Timeout:
        progress.add(file.n_bytes)  # the client waits for whoever fetches it
