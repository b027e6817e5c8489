"""Who is connected to the ZeroMQ front, and who has asked for a request that is not known yet."""

from __future__ import annotations

from actors.gateway.front_stream import FrontStream


class Client:
    """One identity: its streams by request id, and when it was last heard."""

    __slots__ = ("heard_s", "streams")

    def __init__(self, now_s: float) -> None:
        self.heard_s = now_s
        self.streams: dict[str, FrontStream] = {}


class Asker:
    """Who wants a request that is still being tokenised: the newest connection that said its Generate.

    `counted_bytes`: what its Generate holds of the budget for large ones, until then.
    """

    __slots__ = ("counted_bytes", "digest", "identity", "is_cancelled")

    def __init__(self, identity: bytes, digest: str, counted_bytes: int) -> None:
        self.identity, self.digest, self.counted_bytes = identity, digest, counted_bytes
        self.is_cancelled = False
