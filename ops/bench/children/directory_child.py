"""A cache directory in a process of its own, and beside it a bare ZeroMQ socket that echoes what it gets.

python -m ops.bench.children.directory_child SPAWN_SPEC_JSON ECHO_ENDPOINT
At its end it writes one line of JSON: the exact lags of all updates in seconds, and the processor time of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time

import uvloop
import zmq

from actors.cache_directory.directory_actor import DirectoryActor
from messages.lifecycle.spawn_spec import read_spawn_spec
from ops.bench.children.line_child import reserve_output


def main(spawn_spec: str, echo_endpoint: str) -> None:
    """Serve until Stop."""
    replies = reserve_output()
    threading.Thread(target=_echo, args=(echo_endpoint,), daemon=True).start()
    lags_s: list[float] = []

    async def serve() -> None:
        actor = DirectoryActor(read_spawn_spec(spawn_spec.encode()))
        counted = actor.lag.applied

        def applied(sent_s: float, now_s: float) -> None:
            lags_s.append(now_s - sent_s)
            counted(sent_s, now_s)

        actor.lag.applied = applied
        await actor.run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
    replies.write(json.dumps({"lags_s": lags_s, "cpu_s": time.process_time()}) + "\n")
    replies.flush()


def _echo(endpoint: str) -> None:
    socket = zmq.Context.instance().socket(zmq.ROUTER)
    socket.bind(endpoint)
    while True:
        socket.send_multipart(socket.recv_multipart())


if __name__ == "__main__":
    main(*sys.argv[1:])
