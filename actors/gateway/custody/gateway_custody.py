"""This gateway's connection to the custodian: it gives sockets, and gets back those of an earlier incarnation.

What changes in one turn of the event loop is told at its end, in as few packets as possible: a packet of its own for each
change would take a tenth of a short request's time.

The custodian needs nothing but what it is given: when it dies, the next one is given everything again. What it has no room for
is given again until it has.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from actors.gateway.custody.held import Held
from actors.gateway.custody.hold import Custodian, HeldResponse, LeftConnection
from actors.gateway.custody.kept_request import connection_of
from messages.descriptors.async_client import AsyncDescriptorClient
from messages.descriptors.client import KeptDescriptor
from messages.descriptors.packets import MAX_BATCH, Change, close_all
from messages.errors import DescriptorError

# longest wait for the custodian at the start of a gateway. It ends earlier if the custodian dies; one that hangs is killed.
_TAKE_S = 30.0
_FOUND_S = 1.5  # longest wait for its socket's file: the supervisor puts one that was removed back within a second
_CONNECT_AGAIN_S = 0.02
_RETRY_S = 0.5  # between two tries to reach it; after a connection of that length the next try is made at once
_MIN_RETRY_S = 0.01  # after a shorter one; then twice as long each time
_AGAIN_S = 1.0  # between two tries to give it what it had no room for

_decoder = msgspec.msgpack.Decoder(HeldResponse)


class GatewayCustody(Custodian):
    """The holds of one gateway. `owner`: its name. `path`: the custodian's socket. `later`: calls a function after a delay."""

    def __init__(self, owner: str, path: Path, later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]) -> None:
        self._owner, self._path, self._later = owner, path, later
        self._holds: dict[str, Held] = {}
        self._changed: dict[str, Held | None] = {}  # by key, in this turn of the event loop; None: dropped
        self._told: set[str] = set()  # keys whose descriptor the present custodian has been given
        self._not_kept: dict[str, None] = {}  # keys for which it had no room, in the order in which it said so
        self._n_again = MAX_BATCH
        self._again_timer: asyncio.TimerHandle | None = None
        self._claimed: set[str] = set()  # keys of the dead incarnation's connections that may still go on here
        self._stale: set[str] = set()  # keys that the custodian may have and must drop
        self._is_unknown = False  # `claim` has failed: the custodian may have connections that nobody will go on with
        self._client: AsyncDescriptorClient | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._opened_s, self._pause_s = 0.0, 0.0
        self._is_closed = False
        self.n_connected = 0  # how often it has connected to a custodian, which was then given every hold at once
        self._log = structlog.get_logger()

    async def claim(self) -> list[LeftConnection]:
        """The connections that the dead incarnation has left; [] when no custodian answers. Call it once, before `open`."""
        found: list[KeptDescriptor] = []
        client: AsyncDescriptorClient | None = None
        try:
            client = await self._first_client()
            async with asyncio.timeout(_TAKE_S):
                found = await client.find(self._owner)
        except (DescriptorError, TimeoutError) as error:
            self._log.error("custodian: the connections of the dead gateway are lost", error=str(error) or "no answer")
            self._is_unknown = True
        finally:
            if client is not None:
                client.close()
        self._claimed = {kept.key for kept in found}
        return _left_connections(found)

    async def _first_client(self) -> AsyncDescriptorClient:
        end_s = asyncio.get_running_loop().time() + _FOUND_S
        while True:
            try:
                return AsyncDescriptorClient(self._path)
            except DescriptorError:
                if asyncio.get_running_loop().time() > end_s:
                    raise
            await asyncio.sleep(_CONNECT_AGAIN_S)

    def open_now(self) -> None:
        """A custodian is ready: connect to it, if none is connected, without a wait for the next try."""
        if self._retry is not None:
            self._retry.cancel()
            self.open()

    def open(self) -> None:
        """Connect, and give the custodian every hold. Call it before the first connection is served: what goes on here must be
        held as it is now when this process dies as well.

        Tries again until `close` when no custodian listens, or when it goes away.
        """
        self._retry = None
        if self._is_closed:
            return
        try:
            client = AsyncDescriptorClient(self._path, self._note_not_kept)
        except DescriptorError:
            self._retry = self._later(_RETRY_S, self.open)
            return
        self._client, self._opened_s = client, asyncio.get_running_loop().time()
        self._told.clear()
        self._not_kept.clear()
        client.closed.add_done_callback(lambda _: self._lost(client))
        if self._is_unknown:  # their clients would wait for ever
            self._is_unknown = False
            client.tell(self._owner, [(Change(""), None)])
        # what is held is sent before what is dropped, because this process may be killed at any point
        self._changed = dict(self._holds) | dict.fromkeys(self._stale)
        self._stale.clear()
        self._tell_changed()
        self.n_connected += 1

    def drop_claimed(self) -> None:
        """Let the custodian drop the connections of the dead incarnation that nobody holds now."""
        claimed, self._claimed = self._claimed, set()
        for key in claimed:
            self._drop(key)

    @property
    def is_connected(self) -> bool:
        """True while there is a connection to a custodian, as far as this gateway knows."""
        return self._client is not None

    @property
    def is_settled(self) -> bool:
        """True when the custodian has been given everything."""
        return self._client is not None and not self._changed and not self._client.has_unsent

    def close(self) -> None:
        """Let the custodian close everything that it holds for this gateway."""
        self._is_closed = True
        for timer in (self._retry, self._again_timer):
            if timer is not None:
                timer.cancel()
        self._changed.clear()
        if self._client is not None:
            self._client.tell(self._owner, [(Change(""), None)])
            self._client.close()

    def put(self, hold: Held) -> None:
        self._holds[hold.key] = hold
        self._claimed.discard(hold.key)
        self._stale.discard(hold.key)
        if self._client is not None:
            self._change(hold.key, hold)

    def drop(self, hold: Held) -> None:
        if self._holds.pop(hold.key, None) is None:
            return
        self._not_kept.pop(hold.key, None)
        self._drop(hold.key)

    def _drop(self, key: str) -> None:
        if self._client is None:
            self._stale.add(key)
        else:
            self._change(key, None)

    def _change(self, key: str, hold: Held | None) -> None:
        """Tell the custodian of a hold, or of a dropped one (None), at the end of this turn of the event loop."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._tell_changed)
        self._changed[key] = hold

    def tell(self) -> None:
        self._tell_changed()

    def _tell_changed(self) -> None:
        changed, self._changed = self._changed, {}
        if changed and self._client is not None:
            self._client.tell(self._owner, [self._packed(key, hold) for key, hold in changed.items()])

    def _packed(self, key: str, hold: Held | None) -> tuple[Change, int | None]:
        if hold is None:
            self._told.discard(key)
            return Change(key), None
        if key in self._told:
            return Change(key, hold.meta), None
        self._told.add(key)
        return Change(key, hold.meta, has_descriptor=True), hold.fd

    def _note_not_kept(self, keys: list[str]) -> None:
        """The custodian has no room for these sockets: their connections end if this process dies before it has."""
        if self._again_timer is None and not self._is_closed:
            self._log.warning("custodian: no room for a connection; it is offered again later")
            self._again_timer = self._later(_AGAIN_S, self._give_again)
        self._told.difference_update(keys)
        self._not_kept.update(dict.fromkeys(key for key in keys if key in self._holds))
        self._n_again = MAX_BATCH

    def _give_again(self) -> None:
        """Give some again: each time twice as many, until the custodian has no room again."""
        self._again_timer = self._later(_AGAIN_S, self._give_again) if self._not_kept else None
        if self._client is None:
            return
        for key in list(self._not_kept)[: self._n_again]:
            del self._not_kept[key]
            self._change(key, self._holds[key])
        self._n_again *= 2

    def _lost(self, client: AsyncDescriptorClient) -> None:
        if self._client is client and not self._is_closed:
            self._client = None
            self._stale.update(key for key, hold in self._changed.items() if hold is None)
            self._changed.clear()
            lasted_s = asyncio.get_running_loop().time() - self._opened_s
            self._pause_s = 0.0 if lasted_s > _RETRY_S else min(max(2.0 * self._pause_s, _MIN_RETRY_S), _RETRY_S)
            # its socket outlives it, so what is sent at once waits there for the next custodian, whatever this process meets
            self._retry = self._later(self._pause_s, self.open)


def _left_connections(found: list[KeptDescriptor]) -> list[LeftConnection]:
    """What the custodian has returned, as connections. Descriptors that belong to none are closed."""
    requests = {of: kept.descriptor for kept in found if (of := connection_of(kept.key)) is not None}
    connections = (kept for kept in found if connection_of(kept.key) is None)
    left = [one for kept in connections if (one := _read(kept, requests)) is not None]
    close_all(list(requests.values()))
    return left


def _read(kept: KeptDescriptor, requests: dict[str, int]) -> LeftConnection | None:
    """A connection that the custodian has returned, with its request, which is taken out of `requests`; None, with the
    descriptor closed, when what it has noted cannot be read."""
    try:
        response = _decoder.decode(kept.meta)
        one = socket.socket(fileno=kept.descriptor)
    except (msgspec.DecodeError, OSError):
        close_all([kept.descriptor])
        return None
    return LeftConnection(kept.key, one, response, requests.pop(kept.key, None) if response.n_tries else None)
