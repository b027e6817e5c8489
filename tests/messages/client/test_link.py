"""The client's link to a gateway: reconnection, a restarted or silent gateway, bounded buffers. The gateway is a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import zmq

from messages import public
from messages.client import link as link_module
from messages.client.link import ClientLink, OpenCall
from messages.errors import ConfigError
from messages.transport import zmq_options
from messages.transport.zmq_reader import ZmqReader
from messages.wire.codec import Codec
from messages.wire.message import Message
from tests.support.waiting import until

KINDS = (*get_args(public.ClientMessage), *get_args(public.GatewayMessage))


class Gateway:
    """One incarnation of a gateway's socket: records what comes, sends what a test says."""

    def __init__(self, endpoint: str, is_reading: bool = True) -> None:
        self.received: list[Message] = []
        self.peer = b""
        self._codec: Codec[Message] = Codec(KINDS)
        self._context = zmq.Context()
        self._socket = zmq_options.public_router(self._context, endpoint)
        self._reader: ZmqReader | None = None
        if is_reading:
            self.read()

    def read(self) -> None:
        """Read what comes from now on."""
        self._reader = ZmqReader(self._socket, self._arrive, lambda: None)

    def _arrive(self, frames: list[bytes]) -> None:
        self.peer = frames[0]
        self.received.append(self._codec.decode(*frames[1:]))

    def send(self, message: Message) -> None:
        """Send to the client that was heard last."""
        self.send_frames([*self._codec.encode(message)])

    def send_frames(self, frames: list[bytes]) -> None:
        """Send any bytes to the client that was heard last."""
        self._socket.send_multipart([self.peer, *frames])

    def die(self) -> None:
        """Close the socket as a dead process does."""
        if self._reader is not None:
            self._reader.close()
        self._context.destroy(linger=0)

    @property
    def calls(self) -> list[str]:
        """The keys of the calls that have come, in order."""
        return [message.call for message in self.received if isinstance(message, public.ModelsWanted)]


class Call(OpenCall):
    """A call whose message a test can change."""

    def __init__(self, key: str) -> None:
        self.present: Message = public.ModelsWanted(call=key)
        self.answers: list[Any] = []
        self.n_made = 0  # how often its message was made
        self.has_moved = False

    def message(self) -> Message:
        self.n_made += 1
        return self.present

    def moved(self) -> None:
        self.has_moved = True

    def handle(self, message: Any) -> None:
        self.answers.append(message)


@pytest.fixture
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"ipc://{tmp_path_factory.mktemp('link') / 'zeromq'}"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is sent again because this machine is slow."""
    monkeypatch.setattr(link_module, "SILENCE_S", 3600.0)


@pytest.fixture
async def link(endpoint: str) -> AsyncIterator[ClientLink]:
    one = ClientLink(endpoint, lambda: None)
    yield one
    await one.close()


@pytest.fixture
async def open_gateway(endpoint: str) -> AsyncIterator[Callable[..., Gateway]]:
    """Opens incarnations of the gateway; at the end all are closed."""
    opened: list[Gateway] = []

    def open_one(is_reading: bool = True) -> Gateway:
        opened.append(Gateway(endpoint, is_reading))
        return opened[-1]

    yield open_one
    for gateway in opened:
        gateway.die()


async def test_a_call_waits_for_the_first_connection(link: ClientLink, open_gateway: Callable[..., Gateway]) -> None:
    link.open("a", Call("a"))
    assert not link.has_connected
    gateway = open_gateway()
    await until(lambda: gateway.calls)
    assert (gateway.calls, link.is_connected, link.has_connected) == (["a"], True, True)


async def test_answers_go_to_the_call_with_their_key(link: ClientLink, open_gateway: Callable[..., Gateway]) -> None:
    gateway, first, second = open_gateway(), Call("a"), Call("b")
    link.open("a", first)
    link.open("b", second)
    await until(lambda: len(gateway.calls) == 2)
    link.close_call("a")
    for key in ("a", "b", "nobody's"):
        gateway.send(public.Stats(call=key, summary=key))
    await until(lambda: second.answers)
    assert ([answer.summary for answer in second.answers], first.answers) == (["b"], [])


async def test_open_calls_are_sent_again_to_a_restarted_gateway(link: ClientLink, open_gateway: Callable[..., Gateway]) -> None:
    dying = open_gateway()
    calls = {key: Call(key) for key in ("a", "b", "c")}
    for key, call in calls.items():
        link.open(key, call)
    await until(lambda: len(dying.calls) == 3)
    link.close_call("b")
    dying.die()
    await until(lambda: not link.is_connected)
    calls["c"].present = public.ModelsWanted(call="c at its next token")
    successor = open_gateway()
    await until(lambda: len(successor.calls) == 2)
    assert sorted(successor.calls) == ["a", "c at its next token"]
    successor.send(public.Stats(call="a", summary="from the successor"))
    await until(lambda: calls["a"].answers)


async def test_a_new_incarnation_in_alive_messages_gets_the_open_calls(endpoint: str, open_gateway) -> None:
    n_alive: list[int] = []
    link = ClientLink(endpoint, lambda: n_alive.append(1))
    gateway = open_gateway()
    link.open("a", Call("a"))
    await until(lambda: gateway.calls)
    for incarnation in (3, 3, 4):
        gateway.send(public.Alive(incarnation=incarnation))
    await until(lambda: len(gateway.calls) == 2)
    assert (gateway.calls, len(n_alive)) == (["a", "a"], 3)
    await link.close()


async def test_a_silent_gateway_is_asked_again(
    endpoint: str, open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "SILENCE_S", 0.02)
    gateway, link = open_gateway(), ClientLink(endpoint, lambda: None)
    await until(lambda: link.is_connected)
    link.open("a", Call("a"))
    await until(lambda: len(gateway.calls) >= 3)
    link.close_call("a")
    last = public.CancelRequest(request="all that was on its way is here")
    link.send_once(last)
    await until(lambda: last in gateway.received)
    n_calls = len(gateway.calls)
    gateway.send(public.Alive(incarnation=1))
    await until(lambda: link._incarnation == 1)
    assert gateway.calls == ["a"] * n_calls
    await link.close()


async def test_a_gateway_that_stays_silent_is_left_for_the_next_one(
    endpoint: str, open_gateway: Callable[..., Gateway]
) -> None:
    endpoints = [endpoint, f"{endpoint}-of-the-next"]
    link = ClientLink(endpoint, lambda: None, lambda: endpoints)
    silent, next_one = open_gateway(), Gateway(endpoints[1])
    call = Call("a")
    link.open("a", call)
    await until(lambda: silent.calls)
    for number in range(3):
        for _ in range(10):
            link._look()
        assert link.endpoint == endpoint, "each message begins the count anew"
        silent.send(public.Stats(call="a", summary=""))
        await until(lambda n=number: len(call.answers) > n)
    assert not call.has_moved
    for _ in range(11):
        link._look()
    await until(lambda: next_one.calls)
    assert (link.endpoint, call.has_moved, silent.calls) == (endpoints[1], True, ["a"])
    next_one.send(public.Stats(call="a", summary="from the next one"))
    await until(lambda: call.answers[-1].summary == "from the next one")
    await link.close()
    next_one.die()


async def test_what_may_be_lost_is_not_kept(link: ClientLink, open_gateway: Callable[..., Gateway]) -> None:
    for number in range(10_000):
        link.send_once(public.CancelRequest(request=f"r{number}"))
    link.open("a", Call("a"))
    gateway = open_gateway()
    await until(lambda: gateway.received)
    assert gateway.received == [public.ModelsWanted(call="a")]


async def test_calls_beyond_the_socket_wait_in_the_link_and_arrive_once(
    link: ClientLink, open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmq_options, "_TAKES_MESSAGES", 16)  # a gateway's machine that takes no more
    gateway = open_gateway(is_reading=False)
    await until(lambda: link.is_connected)
    keys = [f"{number} {'x' * 240}" for number in range(10_000)]
    calls = [Call(key) for key in keys]
    for key, call in zip(keys, calls, strict=True):
        link.open(key, call)
    n_waiting = len(link._unsent)
    assert n_waiting > 1  # the socket takes a bounded number of messages
    # a call costs nothing while others wait before it: one message was made in vain, not one for each call
    assert sum(call.n_made for call in calls) == len(keys) - n_waiting + 1
    gateway.read()
    await until(lambda: len(gateway.calls) >= len(keys))
    assert sorted(gateway.calls) == sorted(keys)
    assert not link._unsent


async def test_garbage_changes_nothing(link: ClientLink, open_gateway: Callable[..., Gateway]) -> None:
    gateway, call = open_gateway(), Call("a")
    link.open("a", call)
    await until(lambda: gateway.calls)
    for frames in ([b"\xc1", b""], [b"one frame"], [b"a", b"b", b"c"], [b"\x80", b""]):
        gateway.send_frames(frames)
    gateway.send(public.Stats(call="a", summary="s"))
    await until(lambda: call.answers)
    assert len(call.answers) == 1


async def test_resending_a_call_that_is_not_open_does_nothing(link: ClientLink, open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway()
    link.resend("never opened")
    link.open("a", Call("a"))
    link.resend("a")
    await until(lambda: gateway.calls)
    assert "never opened" not in gateway.calls


@pytest.mark.parametrize("endpoint", ["nonsense", "ftp://host", "tcp://host:port"])
async def test_a_wrong_endpoint_is_named(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="endpoint: expected ipc://PATH or tcp://HOST:PORT"):
        ClientLink(endpoint, lambda: None)


async def test_a_link_that_was_never_closed_does_not_hang_the_collector(tmp_path: Path) -> None:
    link = ClientLink(f"ipc://{tmp_path}/nobody", lambda: None)
    finalizer = link._finalizer
    link._watch.cancel()
    link._monitor.close()
    link._reader.close()
    del link
    assert not finalizer.alive or finalizer() is None
