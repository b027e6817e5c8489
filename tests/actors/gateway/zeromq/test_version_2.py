"""A client that asks in version 2 of the protocol: `tests/golden/version_2` has the bytes that its release has sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zmq
import zmq.asyncio

from tests.support.gateway.fake_scheduler import ids_text, oracle, text_ids
from tests.support.gateway.gateway_rig import rig
from tests.support.waiting import DEADLINE_S

RECORDED = Path(__file__).parents[3] / "golden" / "version_2"


def recorded(name: str) -> list[bytes]:
    """The two frames of one recorded message."""
    data = (RECORDED / f"{name}.bin").read_bytes()
    size = int.from_bytes(data[:4], "little")
    return [data[4 : 4 + size], data[4 + size :]]


class OldClient:
    """Sends recorded bytes and reads what comes as that release did: fields that it does not know do not matter to it."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(endpoint)

    async def ask(self, name: str) -> tuple[list[int], str, dict[str, Any]]:
        """(tokens, text, the ending) of the answer to one recorded message."""
        await self._socket.send_multipart(recorded(name))
        tokens, text, is_accepted = list[int](), "", False
        async with asyncio.timeout(DEADLINE_S):
            while True:
                body, arrays = await self._socket.recv_multipart()
                message = msgpack.unpackb(body)
                match message["kind"]:
                    case "Accepted":
                        is_accepted = True
                    case "Chunk":
                        dtype, offset, count = message["ids"]
                        tokens += np.frombuffer(arrays, dtype, count, offset).tolist()
                        text += message["text"]
                    case "Finished":
                        assert is_accepted
                        return tokens, text, message
                    case kind:
                        assert kind == "Alive", message

    async def send(self, name: str) -> None:
        await self._socket.send_multipart(recorded(name))

    def close(self) -> None:
        self._socket.close(0)
        self._context.term()


async def test_a_client_of_version_2_is_served(tmp_path: Path) -> None:
    """Defaults of the server do not apply to it: it does not say which parameters its caller has given."""
    settings = {"zeromq_endpoint": f"ipc://{tmp_path}/zeromq-0", "default_sampling": {"top_p": 0.5}}
    async with rig(**settings) as r:
        client = OldClient(r.settings.zeromq_endpoint)
        try:
            tokens, text, ended = await client.ask("1_text")
            assert tokens == oracle(text_ids("hello"), 5)
            assert text == ids_text(tokens)
            assert (ended["reason"], ended["n_prompt"], ended["n_generated"]) == ("length", 5, 5)
            assert (await client.ask("2_chat"))[0] == oracle(text_ids("user: hi\nassistant: "), 3)
            whole = oracle([1, 2], 8)
            assert (await client.ask("3_tokens"))[0] == whole
            assert (await client.ask("4_resumed"))[0] == whole[3:]
            await client.send("5_received")
            await r.cluster.wait_until(lambda: r.manager.finished.undelivered.n_pending(0.0) == 2)
        finally:
            client.close()
        submits = r.scheduler().submits
        assert (len(submits), submits[2].terms.priority, submits[2].sampling.logprobs) == (3, -5, 1)
        assert {submit.sampling.top_p for submit in submits} == {1.0}
