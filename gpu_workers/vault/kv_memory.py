"""The KV memory of one rank in its replica's vault: found there, or made new, and given again to the next vault.

A rank takes the memory when its scheduler begins the first epoch with it: until then the gang before it may still write there.
Memory is reused only with the same layout: the key in the vault is a hash of all that decides what its bytes mean. Each new
memory has a random number. The *memory generation* of a gang is a hash of the numbers of all its ranks, so it stays the same
only if every rank has the memory of the gang before.
"""

from __future__ import annotations

import os
import secrets
import threading
from hashlib import blake2b
from pathlib import Path

import structlog

from gpu_workers.engine import Engine
from messages.descriptors.client import DescriptorClient, KeptDescriptor
from messages.errors import DescriptorError

_WAIT_S = 2.0  # for a vault that starts at this moment; without one the memory is private until the next vault comes
_NUMBER_BYTES = 8


class KvMemory:
    """`path`: the vault's socket; `owner`: see `messages.ids.memory_owner`; `layout`: what decides the meaning of the bytes."""

    def __init__(self, path: Path, owner: str, layout: bytes) -> None:
        self._path, self._owner, self._layout = path, owner, layout
        self._lock = threading.Lock()  # the step thread takes memory, the event loop's helper thread gives it again
        self._key = ""
        self._descriptor: int | None = None
        self.number = 0  # of the memory in use; 0: none yet
        self._log = structlog.get_logger().bind(owner=owner)

    def take(self, engine: Engine, is_suspect: bool) -> None:
        """Let the engine use the memory of the gang before it, or new memory if there is none, or if that `is_suspect`.

        Called between epochs. Raises: OSError when the machine has no memory."""
        with self._lock:
            self._key = "kv " + blake2b(self._layout + engine.kv_bytes.to_bytes(8), digest_size=16).hexdigest()
            kept = None if is_suspect else self._find(engine.kv_bytes)
            if kept is None:
                self._take_new(engine.kv_bytes)
            else:
                self._replace(kept.descriptor, int.from_bytes(kept.meta))
            assert self._descriptor is not None
            engine.share_kv(self._descriptor)
            self._log.info("KV memory", reused=kept is not None, bytes=engine.kv_bytes)

    def give_again(self) -> None:
        """Put the memory in use into the vault, which may be new. Without a vault it waits for the next call."""
        with self._lock:
            self._give()

    def _take_new(self, n_bytes: int) -> None:
        descriptor = os.memfd_create("kv-memory", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, n_bytes)
        self._replace(descriptor, secrets.randbits(63) | 1)
        self._give()

    def _replace(self, descriptor: int, number: int) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self.number = descriptor, number

    def _find(self, n_bytes: int) -> KeptDescriptor | None:
        """This layout's memory; memory of other layouts is dropped."""
        try:
            with DescriptorClient(self._path, wait_s=_WAIT_S) as client:
                entries = client.find(self._owner)
                for other in {entry.key for entry in entries} - {self._key}:
                    client.drop(self._owner, other)
        except DescriptorError as error:
            self._log.warning("no KV memory from the vault", reason=str(error))
            return None
        found: KeptDescriptor | None = None
        for entry in entries:
            if entry.key == self._key and len(entry.meta) == _NUMBER_BYTES and os.fstat(entry.descriptor).st_size == n_bytes:
                found = entry
            else:
                os.close(entry.descriptor)
        return found

    def _give(self) -> None:
        if self._descriptor is None:
            return
        try:
            with DescriptorClient(self._path) as client:
                client.put(self._owner, self._key, self._descriptor, self.number.to_bytes(_NUMBER_BYTES))
        except DescriptorError as error:
            self._log.warning("the KV memory is not in the vault", reason=str(error))
