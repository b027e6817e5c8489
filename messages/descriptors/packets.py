"""The packets of a descriptor store: one msgpack struct each, with the file descriptors that it names attached (SCM_RIGHTS).

    client                                       server
    Put(owner, key, meta) + 1 descriptor  ---->  Done, or StoreRefusal
    Drop(owner, key)                      ---->  Done
    Changes(owner, changes) + descriptors ---->  nothing, or NotKept
    Find(owner, key, after)               ---->  Found(entries, is_last) + 1 descriptor for each entry

The socket is a unix SOCK_SEQPACKET socket: packets stay whole and in order. Answers come in the order of the requests. Both
sides check that the other one runs as the same user (SO_PEERCRED).
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from messages.errors import DescriptorError

MAX_PACKET_BYTES = 128 << 10  # below the kernel's smallest send buffer
MAX_META_BYTES = 4096
MAX_BATCH = 16  # entries of one packet; the kernel allows 253 descriptors
MAX_REASON_CHARACTERS = 1024
_MAX_KEY_CHARACTERS = 256
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

Owner = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Key = Annotated[str, msgspec.Meta(max_length=_MAX_KEY_CHARACTERS)]
Meta = Annotated[bytes, msgspec.Meta(max_length=MAX_META_BYTES)]
Number = Annotated[int, msgspec.Meta(ge=0)]


class Put(msgspec.Struct, frozen=True, tag="put", array_like=True):
    """Keep the attached descriptor. An entry with the same owner and key is replaced, and its descriptor closed."""

    owner: Owner  # the name of an actor
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_KEY_CHARACTERS)]
    meta: Meta = b""  # what the owner wants to know when it gets the descriptor back


class Drop(msgspec.Struct, frozen=True, tag="drop", array_like=True):
    """Close one entry, or with an empty key all entries of an owner. Entries that are not there are no error."""

    owner: Owner
    key: Key = ""


class Change(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change of one entry. `meta` None: drop it; with an empty key, drop all entries of the owner.

    `has_descriptor` False, with a `meta`: the entry keeps its descriptor, and gets this meta; nothing happens without an entry.
    """

    key: Key
    meta: Meta | None = None
    has_descriptor: bool = False  # the next one of those that are attached to the packet


class Changes(msgspec.Struct, frozen=True, tag="changes", array_like=True):
    """Carry out these changes, in this order. One packet holds many, so that a busy client sends few."""

    owner: Owner
    changes: Annotated[list[Change], msgspec.Meta(max_length=MAX_BATCH)]


class Find(msgspec.Struct, frozen=True, tag="find", array_like=True):
    """Ask for one entry, or with an empty key for all entries of an owner whose numbers are above `after`.

    The answer contains everything that a process put before its death, even if the server had not read it yet.
    """

    owner: Owner
    key: Key = ""
    after: Number = 0


class Done(msgspec.Struct, frozen=True, tag="done", array_like=True):
    """The request was carried out."""


class StoreRefusal(msgspec.Struct, frozen=True, tag="refused", array_like=True):
    """The request was not carried out."""

    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARACTERS)]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One kept descriptor. `number`: rises with each Put."""

    key: Key
    meta: Meta
    number: Number


class Found(msgspec.Struct, frozen=True, tag="found", array_like=True):
    """The entries, in the order of their numbers, with a new descriptor for each. `is_last` False: ask for more."""

    entries: Annotated[list[Entry], msgspec.Meta(max_length=MAX_BATCH)]
    is_last: bool


class NotKept(msgspec.Struct, frozen=True, tag="not_kept", array_like=True):
    """For these keys of a `Changes` there was no room. Its other changes were carried out."""

    keys: Annotated[list[Key], msgspec.Meta(max_length=MAX_BATCH)]


Request = Put | Drop | Changes | Find
Answer = Done | StoreRefusal | Found | NotKept


def decode_request(data: bytes) -> Request:
    """The request in the bytes of one packet. Raises: DescriptorError for bytes that are none."""
    try:
        return msgspec.msgpack.decode(data, type=Request)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DescriptorError(f"request: {error}") from None


def decode_answer(data: bytes) -> Answer:
    """The answer in the bytes of one packet. Raises: DescriptorError for bytes that are none."""
    try:
        return msgspec.msgpack.decode(data, type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DescriptorError(f"answer: {error}") from None


def send_packet(link: socket.socket, packet: Request | Answer, descriptors: Sequence[int] = ()) -> None:
    """Send one packet. The descriptors stay open here. Raises: OSError; BlockingIOError when a non-blocking socket is full."""
    attached = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    link.sendmsg([msgspec.msgpack.encode(packet)], attached)


def receive_packet(link: socket.socket, may_lack: bool = False) -> tuple[bytes, list[int]] | None:
    """The next packet and its descriptors, which belong to the caller; None when the other side has closed.

    `may_lack`: where this process can open no more files, the first descriptors are returned, as many as it could take.

    Raises: OSError; DescriptorError, with every received descriptor closed, when the packet or its descriptors were cut.
    """
    space = socket.CMSG_SPACE(MAX_BATCH * array.array("i").itemsize)
    data, attached, flags, _ = link.recvmsg(MAX_PACKET_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in attached:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if flags & (socket.MSG_TRUNC if may_lack else socket.MSG_TRUNC | socket.MSG_CTRUNC):
        close_all(descriptors)
        raise DescriptorError(f"packet: expected at most {MAX_PACKET_BYTES} bytes and {MAX_BATCH} descriptors, got more")
    return (data, list(descriptors)) if data else None


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors that nobody wants."""
    for descriptor in descriptors:
        os.close(descriptor)


def open_link(path: Path, timeout_s: float | None) -> socket.socket:
    """Connect to the store at `path`. `timeout_s`: of each operation of the socket; None: it never waits.

    Raises: OSError when nobody listens there; DescriptorError when the listener belongs to another user.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        link.settimeout(timeout_s)
        link.connect(os.fspath(path))
        if timeout_s is None:
            link.setblocking(False)
        check_peer(link)
    except BaseException:
        link.close()
        raise
    return link


def check_peer(link: socket.socket) -> None:
    """Ask the kernel who is at the other end. Raises: DescriptorError when that process belongs to another user."""
    _, uid, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != os.getuid():
        raise DescriptorError(f"peer: expected a process of user {os.getuid()}, got user {uid}")
