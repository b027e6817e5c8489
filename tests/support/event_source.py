"""A browser's EventSource, as the HTML standard describes it: it connects again by itself, with the id of the last event."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import httpx

_LONGEST_RETRY_S = 2.0


@dataclass
class EventSource:
    """Reads the events of one URL until the server answers 204. `data`: of each event; `n_connections`: that it has made."""

    http: httpx.AsyncClient
    url: str
    data: list[str] = field(default_factory=list)
    n_connections: int = 0
    last_id: str = ""
    retry_s: float = _LONGEST_RETRY_S

    async def read(self) -> None:
        """Read to the end over as many connections as it takes."""
        while await self._connect():
            await asyncio.sleep(self.retry_s)

    async def _connect(self) -> bool:
        """One connection; returns whether another one follows."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        try:
            async with self.http.stream("GET", self.url, headers=headers) as answer:
                if answer.status_code == 204:
                    return False
                assert answer.status_code == 200
                assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
                self.n_connections += 1
                fields: dict[str, str] = {}
                async for line in answer.aiter_lines():
                    fields = self._dispatch(fields) if not line else self._add(fields, line)
        except httpx.TransportError:
            pass  # an event without its empty line is discarded
        return True

    def _add(self, fields: dict[str, str], line: str) -> dict[str, str]:
        name, _, value = line.partition(":")
        if name == "retry" and value.strip().isdecimal():
            self.retry_s = min(int(value) / 1e3, _LONGEST_RETRY_S)
        return {**fields, name: value.removeprefix(" ")} if name else fields  # a line without a name is a comment

    def _dispatch(self, fields: dict[str, str]) -> dict[str, str]:
        self.last_id = fields.get("id", self.last_id)
        if "data" in fields:
            self.data.append(fields["data"])
        return {}
