"""A streamed HTTP call to a gateway's application without a socket: its body as it grows, and a client that can leave."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message

from actors.gateway.custody.hold import ANSWER_HOLD
from tests.support.gateway.asgi_exchange import NotedHold
from tests.support.gateway.gateway_rig import Rig
from tests.support.waiting import DEADLINE_S


class AsgiStream:
    """One call. It begins at once, and goes on until its answer is complete, `leave` is called, or its gateway is dead."""

    def __init__(
        self, r: Rig, path: str, body: object = None, headers: Mapping[str, str] | None = None, method: str = "POST"
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_complete = False
        self._raw = b"" if body is None else json.dumps(body).encode()
        self._is_read = False
        self._left = asyncio.Event()
        self._changed = asyncio.Event()
        path, _, query = path.partition("?")
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        }
        self.hold = NotedHold(lambda: len(self.body))
        scope["extensions"] = {ANSWER_HOLD: self.hold}
        self.is_cut = False
        self._scope = scope
        self._task = asyncio.ensure_future(r.gateway.servers.app(scope, self._receive, self._send))

    async def serve(self, answer: ASGIApp) -> None:
        """Let another application answer, instead of what has come until now."""
        await self._task
        self.body, self.is_complete = b"", False
        self._task = asyncio.ensure_future(answer(self._scope, self._receive, self._send))

    def be_cut(self) -> None:
        """The connection is cut."""
        self.is_cut = True
        self._changed.set()

    async def _receive(self) -> Message:
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._raw, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self.is_complete = not message.get("more_body", False)
        self._changed.set()

    @property
    def last_id(self) -> int:
        """The id of the newest event; 0 if none has one."""
        return int((re.findall(rb"^id: (\d+)$", self.body, re.MULTILINE) or [b"0"])[-1])

    @property
    def error(self) -> dict[str, Any]:
        """The error in the body."""
        return json.loads(self.body)["error"]

    async def until_id(self, number: int) -> None:
        """Wait until the event with this id has come."""
        async with asyncio.timeout(DEADLINE_S):
            while self.last_id < number:
                self._changed.clear()
                await self._changed.wait()

    async def end(self) -> bytes:
        """Wait for the end of the answer; returns its whole body."""
        await self.ended()
        assert self.is_complete
        return self.body

    async def ended(self) -> None:
        """Wait until the application has returned, whatever it has sent."""
        await asyncio.wait_for(asyncio.shield(self._task), DEADLINE_S)

    async def leave(self) -> None:
        """The client closes its connection."""
        self._left.set()
        await asyncio.wait_for(asyncio.shield(self._task), DEADLINE_S)

    def cut(self) -> None:
        """The gateway of this call is dead."""
        self._task.cancel()
