"""Memory of one rank in its replica's vault: found there, or made new, and given again to the next vault.

Of the kind "kv" are the pages of keys and values, of the kind "host" the places of the host tier, of the kind "exchange" those
that other replicas can read.

A rank takes the memory when its scheduler begins the first epoch with it: until then the gang before it may still write there.
Memory is reused only with the same layout: the key in the vault is a hash of all that decides what its bytes mean. Each new
memory has a random number. The *memory generation* of a gang is a hash of the numbers of all its ranks, so it stays the same
only if every rank has the memory of the gang before.
"""

from __future__ import annotations

import errno
import os
import secrets
import struct
import threading
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import structlog

from gpu_workers.vault.region import Region
from messages.descriptors.client import DescriptorClient, KeptDescriptor
from messages.errors import DescriptorError

_WAIT_S = 2.0  # for a vault that starts at this moment; without one the memory is private until the next vault comes
_DISTRUST_S = 1.0  # for a vault that does not answer; the fault is reported only after that
_SHORT_BITS = 52  # of a number in messages, which fits a double
_META = struct.Struct("<2Q")


class _Meta(NamedTuple):
    """What the vault knows of a memory. All 0: nothing that can be used."""

    number: int
    n_bytes: int


class KeptMemory:
    """`path`: the vault's socket; `owner`: see `messages.ids.memory_owner`; `layout`: what decides the meaning of the bytes;
    `kind`: the owner has one memory of each kind."""

    def __init__(self, path: Path, owner: str, layout: bytes, kind: str = "kv") -> None:
        self._path, self._owner, self._kind = path, owner, kind
        self._lock = threading.Lock()  # the step thread maps memory, the event loop's helper thread gives it again
        self._key = _key_of(kind, layout)
        self._descriptor: int | None = None
        self._n_bytes = 0
        self.number = 0  # of the memory in use; 0: none yet
        self._log = structlog.get_logger().bind(owner=owner, kind=kind)

    @property
    def short_number(self) -> int:
        """The number as messages have it; 0 while no vault can give the memory to others."""
        return _short(self.number) if self._descriptor is not None else 0

    def map_region(self, region: Region, is_suspect: bool) -> bool:
        """Let the region be the memory of the gang before it, or new memory if there is none, or if that `is_suspect`. Returns
        True if it is that of the gang before.

        Called between epochs. Raises: OSError when the device has no memory."""
        with self._lock:
            kept = self._find(region.n_bytes, is_suspect)
            if kept is None:
                self._make_new(region)
            else:
                self._replace(kept.descriptor, _read_meta(kept.meta).number, region.n_bytes)
            if self._descriptor is None:
                return False
            region.share(self._descriptor)
            self._log.info("memory mapped", reused=kept is not None, bytes=region.n_bytes)
            return kept is not None

    def kept_bytes(self) -> int:
        """The size of the memory of the gang before, which the next gang should have too; 0 if there is none."""
        kept = self._find()
        if kept is None:
            return 0
        os.close(kept.descriptor)
        return _read_meta(kept.meta).n_bytes

    def drop_kept(self) -> None:
        """Drop the memory of the gang before."""
        kept = self._find(is_suspect=True)
        assert kept is None, "suspect memory is never found"

    def reserve(self, region: Region) -> None:
        """Put new memory for this region into the vault before it is needed, if there is none of this size. So a device whose
        memory is full refuses it during the load, and gangs that load later know the size.

        Raises: OSError when the device has no memory."""
        with self._lock:
            kept = self._find(region.n_bytes)
            if kept is not None:
                os.close(kept.descriptor)
                return
            self._make_new(region)
            self._replace(None, 0, 0)  # the vault has it; another gang may use it first

    def give_again(self) -> None:
        """Put the memory in use into the vault, which may be new. Without a vault it waits for the next call."""
        with self._lock:
            self._give()

    def distrust(self) -> None:
        """The device has failed and may have damaged the memory in use: no later gang finds it, and no vault gets it again."""
        with self._lock:
            if self._descriptor is None:
                return
            self._replace(None, self.number, 0)
            try:
                with DescriptorClient(self._path, timeout_s=_DISTRUST_S) as client:
                    client.drop(self._owner, self._key)
            except DescriptorError as error:  # a vault that has gone has lost it; another hears how this process has died
                self._log.warning("the vault was not told of damaged memory", reason=str(error))

    def _make_new(self, region: Region) -> None:
        """New memory for a region, which stays private if a file may not be as large."""
        number = secrets.randbits(63) | 1
        try:
            self._replace(region.make(), number, region.n_bytes)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            why = "memory does not outlive this process: shared memory is limited like a file (ulimit -f)"
            self._log.error(why, bytes=region.n_bytes)
            self._replace(None, number, 0)
        self._give()

    def _replace(self, descriptor: int | None, number: int, n_bytes: int) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self.number, self._n_bytes = descriptor, number, n_bytes

    def _find(self, n_bytes: int = 0, is_suspect: bool = False) -> KeptDescriptor | None:
        """The kept memory of this layout and of `n_bytes` (0: of any size). Drops all other memory of the rank and kind, and
        this too if it `is_suspect`, so that the device has room for new memory."""
        found: KeptDescriptor | None = None
        try:
            with DescriptorClient(self._path, wait_s=_WAIT_S) as client:
                for entry in client.find(self._owner):
                    if not entry.key.startswith(f"{self._kind} "):
                        os.close(entry.descriptor)
                        continue
                    meta = _read_meta(entry.meta)
                    if entry.key == self._key and meta.n_bytes and n_bytes in (0, meta.n_bytes) and not is_suspect:
                        found = entry
                    else:
                        os.close(entry.descriptor)
                        client.drop(self._owner, entry.key)
        except DescriptorError as error:
            self._log.warning("the vault did not give the memory", reason=str(error))
        return found

    def _give(self) -> None:
        if self._descriptor is None:
            return
        try:
            with DescriptorClient(self._path) as client:
                client.put(self._owner, self._key, self._descriptor, _META.pack(self.number, self._n_bytes))
        except DescriptorError as error:
            self._log.warning("the memory is not in the vault", reason=str(error))


def find_memory(path: Path, owner: str, layout: bytes, kind: str, timeout_s: float) -> tuple[int, int] | None:
    """The memory of a rank of another replica, from the vault at `path`: (its descriptor, which the caller closes; its number
    as messages have it). None if there is none of this layout and kind. Raises: DescriptorError."""
    with DescriptorClient(path, timeout_s=timeout_s) as client:
        kept = next(iter(client.find(owner, _key_of(kind, layout))), None)
    return None if kept is None else (kept.descriptor, _short(_read_meta(kept.meta).number))


def _key_of(kind: str, layout: bytes) -> str:
    return f"{kind} " + blake2b(layout, digest_size=16).hexdigest()


def _short(number: int) -> int:
    return number >> (63 - _SHORT_BITS)


def _read_meta(meta: bytes) -> _Meta:
    return _Meta(*_META.unpack(meta)) if len(meta) == _META.size else _Meta(0, 0)
