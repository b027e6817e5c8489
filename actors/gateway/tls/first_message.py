"""Waits for the first message of a TLS client, so that the work of many handshakes does not fall into one turn of the loop."""

from __future__ import annotations

import asyncio
import socket

_HEAD_BYTES = 9  # 5 of a record, then the kind of the message in it and its length in 3
_MESSAGE_HEAD_BYTES = 4
_HANDSHAKE, _CLIENT_HELLO = 22, 1  # kinds of a record and of a message (RFC 8446)
_MOST_RECORD_BYTES = 1 << 14


async def is_whole_in_one_record(client: socket.socket, limit_s: float) -> bool:
    """Wait until the first record has arrived, without reading it. Returns False if its message goes on in further ones, which
    hardly any client does. What is no TLS is left to the library, which refuses it.

    Raises: TimeoutError after `limit_s` seconds; OSError when the client leaves before.
    """
    try:
        async with asyncio.timeout(limit_s):
            head = await _peek(client, _HEAD_BYTES)
            n_record, n_message = int.from_bytes(head[3:5]), int.from_bytes(head[6:9])
            if (head[0], head[5]) != (_HANDSHAKE, _CLIENT_HELLO) or n_record > _MOST_RECORD_BYTES:
                return True
            await _peek(client, 5 + n_record)
            return _MESSAGE_HEAD_BYTES + n_message <= n_record
    finally:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _peek(client: socket.socket, n_bytes: int) -> bytes:
    """The first bytes that wait in the kernel. Raises: OSError if the client has left before they have come."""
    loop = asyncio.get_running_loop()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, n_bytes)  # below that it does not count as readable
    has_come: asyncio.Future[None] = loop.create_future()
    loop.add_reader(client, lambda: has_come.done() or has_come.set_result(None))
    try:
        await has_come
    finally:
        loop.remove_reader(client)
    found = client.recv(n_bytes, socket.MSG_PEEK)
    if len(found) < n_bytes:
        raise ConnectionAbortedError("the client has left within its first message")
    return found
