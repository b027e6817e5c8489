"""The client of a descriptor store for ordinary code, such as a step thread. `AsyncDescriptorClient` is for asyncio."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from messages.descriptors.packets import (
    Answer,
    Done,
    Drop,
    Find,
    Found,
    Put,
    Request,
    StoreRefusal,
    close_all,
    decode_answer,
    open_link,
    receive_packet,
    send_packet,
)
from messages.errors import DescriptorError

_TIMEOUT_S = 5.0
_RETRY_S = 0.01


@dataclass(frozen=True)
class KeptDescriptor:
    """A descriptor from the store. It belongs to whoever gets it; the store keeps its own."""

    key: str
    meta: bytes
    descriptor: int


class DescriptorClient:
    """One connection to the store at `path`. Not thread-safe. Every call raises DescriptorError when the store refuses, does
    not answer within `timeout_s`, or has gone; then this client cannot be used any more."""

    def __init__(self, path: Path, wait_s: float = 0.0, timeout_s: float = _TIMEOUT_S) -> None:
        """Connect. `wait_s`: how long to try again while nobody listens there. Raises: DescriptorError."""
        end_s = time.monotonic() + wait_s
        while True:
            try:
                self._link = open_link(path, timeout_s)
                return
            except OSError as error:
                if time.monotonic() >= end_s:
                    raise DescriptorError(f"{path}: expected a descriptor store, got {error.strerror or error}") from None
            time.sleep(_RETRY_S)

    def __enter__(self) -> DescriptorClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; entries stay."""
        self._link.close()

    def put(self, owner: str, key: str, descriptor: int, meta: bytes = b"") -> None:
        """Let the store keep a copy of a descriptor. An entry with the same owner and key is replaced."""
        expect_done(self._ask(Put(owner, key, meta), [descriptor])[0])

    def drop(self, owner: str, key: str = "") -> None:
        """Close one entry, or all entries of an owner."""
        expect_done(self._ask(Drop(owner, key))[0])

    def find(self, owner: str, key: str = "") -> list[KeptDescriptor]:
        """The entry with this key, or all entries of an owner in the order in which they were put; [] when there is none."""
        found: list[KeptDescriptor] = []
        after = 0
        try:
            while True:
                answer, descriptors = self._ask(Find(owner, key, after))
                entries, is_last = read_found(answer, descriptors)
                found += entries
                if is_last or not isinstance(answer, Found):
                    return found
                after = answer.entries[-1].number
        except DescriptorError:
            close_all([one.descriptor for one in found])
            raise

    def _ask(self, request: Request, descriptors: list[int] | None = None) -> tuple[Answer, list[int]]:
        try:
            send_packet(self._link, request, descriptors or [])
            packet = receive_packet(self._link)
        except OSError as error:
            raise DescriptorError(f"the descriptor store does not answer: {error.strerror or error}") from None
        if packet is None:
            raise DescriptorError("the descriptor store has closed the connection")
        return read_answer(*packet)


def read_answer(data: bytes, descriptors: list[int]) -> tuple[Answer, list[int]]:
    """Decode an answer. Raises: DescriptorError, with the descriptors closed, for bytes that are not one."""
    try:
        return decode_answer(data), descriptors
    except DescriptorError:
        close_all(descriptors)
        raise


def expect_done(answer: Answer) -> None:
    """Check that the store did what it was asked. Raises: DescriptorError, with its reason, when the answer is not Done."""
    if not isinstance(answer, Done):
        raise DescriptorError(answer.reason if isinstance(answer, StoreRefusal) else f"answer: expected done, got {answer}")


def read_found(answer: Answer, descriptors: list[int]) -> tuple[list[KeptDescriptor], bool]:
    """(entries, True if there are no more). Raises: DescriptorError, with the descriptors closed, for another answer."""
    if not isinstance(answer, Found) or len(answer.entries) != len(descriptors):
        close_all(descriptors)
        raise DescriptorError(answer.reason if isinstance(answer, StoreRefusal) else f"answer: expected entries, got {answer}")
    kept = [KeptDescriptor(e.key, e.meta, one) for e, one in zip(answer.entries, descriptors, strict=True)]
    return kept, answer.is_last or not answer.entries
