"""Questions to the other gateways of this server: which of them knows a request, and what one answers to a GET."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import quote

from starlette.responses import Response

from actors.gateway.other_gateways.unix_http import LOST, get, read_head
from actors.gateway.requests.refusals import Refusal

KNOWN_PATH = "/forwarded/known/"
RETRY_S = 0.05  # after a gateway could not be reached
_OTHERS_S = 20.0  # longest wait for the gateways that may have a request


async def who_knows(sockets: Sequence[str], request: str) -> str:
    """The first of these gateways that knows a request with this id; "": none of them does. Waits for gateways that start.

    Raises: Refusal if one does not answer.
    """
    answers = await asyncio.gather(*(fetched(socket_path, _known(request)) for socket_path in sockets))
    return next((path for path, answer in zip(sockets, answers, strict=True) if answer.status_code == 204), "")


async def fetched(socket_path: str, call: bytes) -> Response:
    """The whole answer of the gateway that listens at `socket_path`. Waits for one that starts.

    Raises: Refusal if it does not answer.
    """
    try:
        async with asyncio.timeout(_OTHERS_S):
            while True:
                try:
                    return await _fetch(socket_path, call)
                except LOST:
                    await asyncio.sleep(RETRY_S)
    except TimeoutError:
        raise Refusal("unavailable", "another gateway of this server does not answer", retry_after_s=1.0) from None


async def _fetch(socket_path: str, call: bytes) -> Response:
    """Send the bytes of a call to the gateway at this socket; returns its whole response. Raises: one of `LOST`."""
    reader, writer = await asyncio.open_unix_connection(socket_path)
    try:
        writer.write(call)
        head = await read_head(reader)
        response = Response(await reader.readexactly(max(head.length, 0)), head.status)
        response.raw_headers = head.headers
        return response
    finally:
        writer.close()


def _known(request: str) -> bytes:
    """Asks whether a gateway knows a request with this id."""
    return get(KNOWN_PATH + quote(request, safe=""))
