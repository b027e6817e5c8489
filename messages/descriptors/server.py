"""The server of a descriptor store: a unix socket in the run directory, on an asyncio loop, around a `DescriptorTable`."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from messages.descriptors.packets import (
    MAX_REASON_CHARACTERS,
    Answer,
    Changes,
    Done,
    Drop,
    Find,
    Found,
    NotKept,
    Put,
    StoreRefusal,
    check_peer,
    close_all,
    decode_request,
    open_link,
    receive_packet,
    send_packet,
)
from messages.descriptors.reserve import process_reserve
from messages.descriptors.table import DescriptorTable
from messages.errors import DescriptorError

_BACKLOG = 128
_MAX_CLIENTS = 256
_PAUSE_S = 0.05  # between two tries to accept while this process has no descriptor left
_FULL_BATCH = 64  # packets of one client in one turn of the loop
_POLL_S = 0.5  # between two looks whether the socket's file is there, as mailboxes look for theirs
_MORE_THAN_WAITS = 65_536  # packets; the buffer of a socket holds fewer


class DescriptorServer:
    """Serves `table` to processes of the same user. Entries stay when a client goes: only Put and Drop change them. If somebody
    removes the socket's file, it is made again.

    `on_change`: called after each Put and Drop.
    """

    def __init__(
        self,
        path: Path,
        table: DescriptorTable,
        on_change: Callable[[], None] = lambda: None,
        listener: socket.socket | None = None,
    ) -> None:
        """Bind the socket at `path`, which may be left over from a dead process. `listener`: one that another process holds as
        well, so clients can connect and send between two servers; it is used if `path` leads to it. Raises: OSError.
        """
        self.path, self.table = path, table
        self._on_change = on_change
        self._clients: set[socket.socket] = set()
        self._late: set[socket.socket] = set()  # clients that have no room for an answer
        self._busy: set[socket.socket] = set()  # clients that are being read
        self._loop = asyncio.get_running_loop()
        self._listener = _listener_at(path, listener)
        self._loop.add_reader(self._listener, self._accept)
        self._look_timer = self._loop.call_later(_POLL_S, self._look)

    def close(self) -> None:
        """Close the socket, the connections and every kept descriptor."""
        self._look_timer.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for client in list(self._clients):
            self._leave(client)
        self.table.clear()

    def _look(self) -> None:
        """If the socket's file was removed, listen at a new one."""
        self._look_timer = self._loop.call_later(_POLL_S, self._look)
        if os.path.exists(self.path):
            return
        with suppress(OSError):  # its folder has gone too, or no descriptor is left: the next look tries again
            listener = listen_at(self.path)
            while self._accept():  # who has found the old one
                pass
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = listener
            self._loop.add_reader(listener, self._accept)

    def _accept(self) -> bool:
        """Accept one connection. False when none waits, or none can be accepted now."""
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return False
        except OSError:  # no descriptor is left: the connection waits in the backlog
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_PAUSE_S, self._accept_again)
            return False
        client.setblocking(False)
        try:
            check_peer(client)
        except (DescriptorError, OSError):
            client.close()
            return True
        if len(self._clients) >= _MAX_CLIENTS:
            client.close()
            return True
        self._clients.add(client)
        self._loop.add_reader(client, self._read, client, _FULL_BATCH)
        return True

    def _accept_again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _leave(self, client: socket.socket) -> None:
        self._clients.discard(client)
        self._late.discard(client)
        self._loop.remove_reader(client)
        self._loop.remove_writer(client)
        client.close()

    def _read(self, client: socket.socket, most: int) -> None:
        """Carry out up to `most` packets of a client."""
        self._busy.add(client)
        try:
            self._read_packets(client, most)
        finally:
            self._busy.discard(client)

    def _read_packets(self, client: socket.socket, most: int) -> None:
        for _ in range(most):
            try:
                packet = receive_packet(client, may_lack=True)
            except BlockingIOError:
                return
            except ConnectionResetError:  # it died with an answer unread; what it has sent is still to be read
                continue
            except (OSError, DescriptorError):
                packet = None
            if packet is None:
                self._leave(client)
                return
            answer, found = self._carry_out(*packet)
            if answer is not None and not self._answer(client, answer, found):
                return

    def _catch_up(self) -> None:
        """Read what every other client has sent until now, so that a Find finds what a dead process had put at last."""
        while self._accept():
            pass
        for client in list(self._clients - self._busy - self._late):
            if client in self._clients:
                self._read(client, _MORE_THAN_WAITS)

    def _carry_out(self, data: bytes, descriptors: list[int]) -> tuple[Answer | None, list[int]]:
        """The answer to one packet (None: it wants none), with its descriptors. Received ones that are not kept are closed."""
        unused = list(descriptors)
        try:
            request = decode_request(data)
            match request:
                case Put(owner, key, meta):
                    if len(descriptors) != 1:
                        raise DescriptorError(f"descriptors: expected 1, got {len(descriptors)}")
                    self.table.put(owner, key, descriptors[0], meta)
                    unused.clear()
                    self._on_change()
                case Drop(owner, key):
                    self.table.drop(owner, key)
                    self._on_change()
                case Changes():
                    not_kept = self._change(request, unused)
                    return NotKept(not_kept) if not_kept else None, []
                case Find(owner, key, after):
                    self._catch_up()
                    entries, found, is_last = self.table.find(owner, key, after)
                    return Found(entries, is_last), found
            return Done(), []
        except DescriptorError as error:
            return StoreRefusal(str(error)[:MAX_REASON_CHARACTERS]), []
        finally:
            close_all(unused)

    def _change(self, request: Changes, unused: list[int]) -> list[str]:
        """Carry out changes, and remove the descriptors that are kept from `unused`. Returns the keys for which there is no
        room."""
        not_kept: list[str] = []
        if len(unused) > sum(change.has_descriptor for change in request.changes):
            return [change.key for change in request.changes if change.has_descriptor]
        for change in request.changes:
            if change.meta is None:
                self.table.drop(request.owner, change.key)
            elif not change.has_descriptor:
                self.table.change(request.owner, change.key, change.meta)
            elif not (unused and self._keep(request.owner, change.key, unused.pop(0), change.meta)):
                not_kept.append(change.key)  # the table is full, or this process could not take the descriptor
        self._on_change()
        return not_kept

    def _keep(self, owner: str, key: str, descriptor: int, meta: bytes) -> bool:
        try:
            if not process_reserve().is_short:  # what is free then is needed by links to other actors
                self.table.put(owner, key, descriptor, meta)
                return True
        except DescriptorError:  # the table is full
            pass
        os.close(descriptor)
        return False

    def _answer(self, client: socket.socket, answer: Answer, descriptors: list[int]) -> bool:
        """Send an answer. False when the client has no room: it is not read any more until the answer has left."""
        try:
            send_packet(client, answer, descriptors)
            return True
        except BlockingIOError:
            pass
        except OSError:
            self._leave(client)
            return False
        copies: list[int] = []
        try:
            copies.extend(map(os.dup, descriptors))  # the entries may be dropped meanwhile
        except OSError:
            close_all(copies)
            self._leave(client)
            return False
        self._late.add(client)
        self._loop.remove_reader(client)
        self._loop.add_writer(client, self._answer_late, client, answer, copies)
        return False

    def _answer_late(self, client: socket.socket, answer: Answer, copies: list[int]) -> None:
        try:
            send_packet(client, answer, copies)
        except BlockingIOError:
            return
        except OSError:
            close_all(copies)
            self._leave(client)
            return
        close_all(copies)
        with suppress(OSError):
            self._late.discard(client)
            self._loop.remove_writer(client)
            self._loop.add_reader(client, self._read, client, _FULL_BATCH)


def _listener_at(path: Path, inherited: socket.socket | None) -> socket.socket:
    """The inherited listener if `path` leads to it, otherwise a new one. Raises: OSError."""
    if inherited is None:
        return listen_at(path)
    try:
        open_link(path, None).close()  # no other process listens there now
        return inherited
    except BlockingIOError:  # its queue is full
        return inherited
    except (OSError, DescriptorError):  # somebody has removed the socket's file, and an earlier server made another one
        inherited.close()
        return listen_at(path)


def listen_at(path: Path) -> socket.socket:
    """A socket that listens at `path` for clients of a store. Raises: OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        unfinished = path.with_name(path.name + ".new")
        unfinished.unlink(missing_ok=True)
        listener.bind(os.fspath(unfinished))
        listener.listen(_BACKLOG)
        unfinished.rename(path)  # whoever finds the socket can connect
    except OSError:
        listener.close()
        raise
    return listener
