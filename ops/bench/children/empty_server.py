"""A completion server without a model: it writes as many chunks as were asked for, as fast as it can."""

from __future__ import annotations

import asyncio
import json
import socket

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_TEXT = b'data: {"id":"cmpl-0","object":"text_completion","choices":[{"index":0,"text":" word","finish_reason":null}]}\n\n'
_BATCH = 16  # chunks between two looks at the other streams


def serve_chunks(listener: socket.socket) -> None:
    """Serve on a listening socket until the process is ended."""
    asyncio.run(_serve(listener))


async def _serve(listener: socket.socket) -> None:
    server = await asyncio.start_server(_answer_all, sock=listener)
    await server.serve_forever()


async def _answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            writer.write(_HEAD)
            for at in range(0, body["max_tokens"], _BATCH):
                for _ in range(at, min(at + _BATCH, body["max_tokens"])):
                    writer.write(_chunk(_TEXT))
                await asyncio.sleep(0)
            usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
            writer.write(_chunk(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"))
            writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
