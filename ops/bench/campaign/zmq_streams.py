"""Clients of the drill over ZeroMQ: streams of the client library, which comes back by itself when its gateway dies."""

from __future__ import annotations

import time

from messages.client import AsyncClient
from messages.errors import ClientError
from supervisor.drill.streams import DrillStream, StreamRequest


async def follow_zmq(client: AsyncClient, options: StreamRequest, stream: DrillStream) -> None:
    """Stream one answer to its end. Whatever ends it early is noted in `stream.error`."""
    stream.began_s = time.monotonic()
    try:
        async for piece in client.stream(
            stream.prompt,
            max_tokens=options.max_tokens,
            temperature=1.0 if stream.seed else 0.0,
            seed=stream.seed,
            ignore_eos=options.ignores_end,
            deadline_s=options.deadline_s,
        ):
            stream.is_accepted = True
            if piece.text:
                stream.pieces.append(piece.text)
                stream.arrivals_s.append(time.monotonic())
        stream.is_complete = True
    except ClientError as error:
        stream.error = f"{type(error).__name__}: {error}"[:200]
