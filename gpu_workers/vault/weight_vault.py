"""The finished weights of one rank in its replica's vault: loaded by the first process that needs them, mapped by later ones.

    a process of the rank         is there such an entry?      what it does
    --------------------------    -------------------------    -------------------------------------------------------------
    the first one                 no                           loads into new memory, seals it, puts it into the vault
    one beside a loading one      not yet                      waits until the loading one has ended or died (a file lock)
    a later one                   yes                          maps it read-only and compares its checksum
    one beside a living one       no, the vault is new         waits until the living one has put it there again

Memory that is not sealed is known to its loader alone and goes with it. The key of an entry is a hash of all that decides what
its bytes mean; entries with other keys are dropped. Before a process reads the memory it notes in the entry that it begins to:
memory whose reading has ended two processes in a row is given up.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import msgspec
import structlog

from messages.descriptors.client import DescriptorClient, KeptDescriptor
from messages.errors import DescriptorError

_WAIT_S = 2.0  # for a vault that starts at this moment; without one the memory is private until the next vault comes
_AGAIN_S = 5.0  # for a living process to put its weights into a new vault
_LOADING_S = 600.0  # for another process that loads the same weights; then this one loads its own
_POLL_S = 0.02
_MOST_CHECKS = 2  # that began and did not end


class SealedWeights(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What the vault knows of weights. The memory begins with the tensors, and their index follows."""

    n_bytes: int  # of the whole memory
    tensor_bytes: int
    index_bytes: int
    index_digest: bytes
    n_checks: int = 0  # processes that have begun to read it, and not ended


class WeightVault:
    """`path`: the vault's socket; `owner`: see `messages.ids.weights_owner`; `content`: what decides the meaning of the bytes.

    `shared_bytes`: size of the memory that this process uses and others may use too; 0: none yet."""

    def __init__(self, path: Path, owner: str, content: bytes) -> None:
        self._path, self._owner = path, owner
        self._key = "weights " + blake2b(content, digest_size=16).hexdigest()
        self._lock = threading.Lock()  # the step thread loads, the event loop's helper thread gives again
        self._descriptor: int | None = None
        self._sealed: SealedWeights | None = None
        name = blake2b(owner.encode(), digest_size=6).hexdigest()
        self._loading, self._used = (path.with_name(f"{path.name}-{name}.{what}") for what in ("loading", "used"))
        self._using: int | None = None
        self.shared_bytes = 0
        self._log = structlog.get_logger().bind(owner=owner)

    @contextmanager
    def alone(self, on_wait: Callable[[], None]) -> Iterator[bool]:
        """A lock: while it is held, no other process loads weights of this owner or reads them for the first time.

        Yields True if the lock was free in time; until then `on_wait` is called again and again. Raises: OSError when the
        lock's file cannot be made."""
        descriptor = os.open(self._loading, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end_s = time.monotonic() + _LOADING_S
            while not (is_alone := _try_lock(descriptor, fcntl.LOCK_EX)) and time.monotonic() < end_s:
                on_wait()
                time.sleep(_POLL_S)
            yield is_alone
        finally:
            os.close(descriptor)

    def open_sealed(self) -> tuple[int, SealedWeights] | None:
        """A descriptor of the sealed memory of this content, which the caller closes, and what is known of it."""
        end_s = time.monotonic() + _AGAIN_S
        while True:
            entries = self._entries()
            if entries or not self._is_used() or time.monotonic() >= end_s:
                return self._choose(entries)
            time.sleep(_POLL_S)

    def begin_check(self, descriptor: int, sealed: SealedWeights) -> None:
        """Note that this process begins to read the memory; `adopt` notes that it could."""
        self._put(descriptor, msgspec.structs.replace(sealed, n_checks=sealed.n_checks + 1))

    def adopt(self, descriptor: int, sealed: SealedWeights) -> None:
        """Take the memory, which other processes may use too. The descriptor belongs to this object from now on."""
        with self._lock:
            self._descriptor, self._sealed = descriptor, msgspec.structs.replace(sealed, n_checks=0)
            self.shared_bytes = sealed.n_bytes
            self._using = os.open(self._used, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _try_lock(self._using, fcntl.LOCK_SH)
            self._put(descriptor, self._sealed)

    def drop(self, key: str = "") -> None:
        """Drop the memory of this key from the vault, so that no later process uses it; "": all memory of this owner."""
        try:
            with DescriptorClient(self._path) as client:
                client.drop(self._owner, key)
        except DescriptorError as error:
            self._log.warning("the weights may still be in the vault", reason=str(error))

    def give_again(self) -> None:
        """Put the memory in use into the vault, which may be new. Without a vault it waits for the next call."""
        with self._lock:
            if self._descriptor is not None and self._sealed is not None:
                self._put(self._descriptor, self._sealed)

    def close(self) -> None:
        """End this process's use of the memory; the vault keeps it."""
        with self._lock:
            for descriptor in (self._descriptor, self._using):
                if descriptor is not None:
                    os.close(descriptor)
            self._descriptor = self._using = self._sealed = None

    def _entries(self) -> list[KeptDescriptor]:
        try:
            with DescriptorClient(self._path, wait_s=_WAIT_S) as client:
                return client.find(self._owner)
        except DescriptorError as error:
            self._log.warning("the vault did not give the weights", reason=str(error))
            return []

    def _choose(self, entries: list[KeptDescriptor]) -> tuple[int, SealedWeights] | None:
        """The entry that can be used. All others are dropped."""
        found: tuple[int, SealedWeights] | None = None
        for entry in entries:
            sealed = self._read(entry)
            if sealed is not None:
                found = entry.descriptor, sealed
            else:
                os.close(entry.descriptor)
                self.drop(entry.key)
        return found

    def _read(self, entry: KeptDescriptor) -> SealedWeights | None:
        """What is known of an entry; None for one that must not be used."""
        try:
            sealed = msgspec.msgpack.decode(entry.meta, type=SealedWeights)
        except msgspec.DecodeError:
            return None
        if sealed.n_checks >= _MOST_CHECKS:
            self._log.error("shared weights dropped", reason="processes that read them have died", n=sealed.n_checks)
        return sealed if entry.key == self._key and sealed.n_checks < _MOST_CHECKS else None

    def _is_used(self) -> bool:
        """True if another process has this owner's weights in use, so that a new vault will get them."""
        try:
            descriptor = os.open(self._used, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _try_lock(descriptor, fcntl.LOCK_EX)
        finally:
            os.close(descriptor)

    def _put(self, descriptor: int, sealed: SealedWeights) -> None:
        try:
            with DescriptorClient(self._path) as client:
                client.put(self._owner, self._key, descriptor, msgspec.msgpack.encode(sealed))
        except DescriptorError as error:
            self._log.warning("the weights are not in the vault", reason=str(error))


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
