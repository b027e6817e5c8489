"""The client for ordinary code where nobody serves: closed, interrupted, at a wrong address. No call waits for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from messages.client import AsyncClient, Client, sync_client
from messages.client.options import absence_of
from messages.errors import ConfigError, DeadlineExceeded, Unavailable

DEADLINE_S = 60.0


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of nobody. It gives up only where a call says so, however slow the machine is."""
    monkeypatch.setattr("messages.client.async_client.CONNECT_S", 1e9)
    client = Client(f"ipc://{tmp_path}/nobody")
    yield client
    client.close()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler of SIGINT: a shell starts its background jobs with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def is_busy(client: Client) -> bool:
    return bool(asyncio.all_tasks(client._loop))


def test_a_client_that_is_closed_ends_the_calls_of_other_threads(client: Client) -> None:
    def close() -> None:
        until(lambda: is_busy(client))
        client.close()

    closing = threading.Thread(target=close)
    closing.start()
    with pytest.raises(Unavailable, match="closed"):
        client.models()
    closing.join(DEADLINE_S)
    client.close()
    for call in (client.models, lambda: client.generate("x"), lambda: next(client.stream("x"))):
        with pytest.raises(Unavailable, match="closed"):
            call()


def test_a_client_that_is_closed_before_a_thread_hears_of_its_end_is_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call has ended, and the loop is closed when its thread gets a core."""

    async def work(_: AsyncClient) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unavailable("the client was closed") from None

    def heard_late(future: Future[Any], *rest: Any) -> Any:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), client._loop).result()  # it has begun
        client.close()
        return result(future, *rest)

    result = sync_client._result
    monkeypatch.setattr(sync_client, "_result", heard_late)
    with pytest.raises(Unavailable, match="the client was closed"):
        client.run(work)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_client_that_is_closed_while_a_call_is_handed_over_is_closed(
    is_closed: bool, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop is closed, or has run for the last time."""
    hand_over = asyncio.run_coroutine_threadsafe

    def after_the_end(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Future[Any]:
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", hand_over)
        if is_closed:
            client.close()
        else:
            loop.call_soon_threadsafe(loop.stop)
            client._thread.join()
        return hand_over(work, loop)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", after_the_end)
    monkeypatch.setattr(sync_client, "_TURN_S", 0.01)
    with pytest.raises(Unavailable, match="the client was closed"):
        client.models()


def test_a_stream_that_outlives_its_client_is_over(client: Client) -> None:
    stream = client.stream("x")
    client.close()
    with pytest.raises(Unavailable, match="closed"):
        next(stream)


@pytest.mark.parametrize("call", ["generate", "stream"])
def test_an_interrupt_ends_the_call_and_not_the_client(client: Client, call: str, interruptible: None) -> None:
    def interrupt() -> None:
        until(lambda: is_busy(client))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        client.generate("x") if call == "generate" else next(client.stream("x"))
    interrupting.join(DEADLINE_S)
    until(lambda: not is_busy(client))
    with pytest.raises(Unavailable, match=r"no server answered within 0\.01 s"):
        client.models(0.01)


def test_a_wait_has_turns_and_the_works_own_timeout_is_no_turn(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that comes in the moment before a wait begins is noticed when the wait is over."""
    waits: list[float | None] = []

    class Work(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            waits.append(timeout)
            if len(waits) == 3:
                self.set_exception(TimeoutError("the work's own"))
            super().result(0)

    hand_over = asyncio.run_coroutine_threadsafe

    def start(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Work:
        hand_over(work, loop)
        return Work()

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", start)
    with pytest.raises(TimeoutError, match="the work's own"):
        client.models()
    monkeypatch.undo()
    assert [wait is not None and wait <= 1.0 for wait in waits[:3]] == [True] * 3


def test_an_interrupt_while_a_call_is_handed_over_ends_the_call(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_over = asyncio.run_coroutine_threadsafe

    def interrupted(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        hand_over(work, loop)
        until(lambda: is_busy(client))
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.generate("x")
    until(lambda: not is_busy(client))
    monkeypatch.undo()


def test_a_server_that_is_not_there_is_told_with_the_usual_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Client(port=8123) as client, pytest.raises(Unavailable) as caught:
        client.models(0.01)
    said = str(caught.value)
    assert said.startswith(
        f"ipc://{tmp_path}/tardigrade-8123/zeromq-0: no server answered within 0.01 s; there is no such socket."
    )
    assert "A server on another port is Client(port=...)." in said
    assert "--run-dir" in said
    assert "pass its ZeroMQ endpoint" in said
    assert "--zeromq-port" in absence_of("tcp://127.0.0.1:8000")
    assert [absence_of(endpoint) for endpoint in ("ipc://@abstract", f"ipc://{tmp_path}")] == ["", ""]


def test_a_deadline_holds_while_nobody_is_there(client: Client) -> None:
    with pytest.raises((Unavailable, DeadlineExceeded)):
        client.generate("x", deadline_s=0.05)


@pytest.mark.parametrize("endpoint", ["tcp://nowhere", "tcp://127.0.0.1", "ipc://" + "x" * 200])
def test_an_address_that_cannot_be_one_is_a_configuration_error(endpoint: str) -> None:
    with Client(endpoint) as client, pytest.raises(ConfigError, match="endpoint: expected ipc://PATH or tcp://HOST:PORT, got"):
        client.models()


def test_a_forked_process_needs_a_client_of_its_own(client: Client) -> None:
    child = os.fork()
    if not child:  # nothing of pytest may run here
        signal.alarm(int(DEADLINE_S))
        try:
            client.models()
        except Unavailable as error:
            client.close()
            os._exit(0 if "before this fork" in str(error) else 3)
        os._exit(4)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(Unavailable, match="no server"):
        client.models(0.01)


def test_an_asyncio_client_says_that_its_loop_is_gone(tmp_path: Path) -> None:
    client = AsyncClient(f"ipc://{tmp_path}/nobody")
    for words in ("no server answered", "another event loop"):
        with pytest.raises(Unavailable, match=words):
            asyncio.run(client.models(0.01))


FORGETFUL = """
import asyncio, gc, sys
from messages.client import AsyncClient, Client, sync_client
from messages.client.options import absence_of
from messages.errors import Unavailable

async def ask() -> None:
    try:
        await AsyncClient(sys.argv[1]).models(0.01)
    except Unavailable:
        print("nobody")

asyncio.run(ask())
gc.collect()
try:
    Client(sys.argv[1]).models(0.01)
except Unavailable:
    print("nobody")
gc.collect()
"""


def test_clients_that_nobody_closes_hold_nothing_up(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORGETFUL, f"ipc://{tmp_path}/nobody"]
    root = str(Path(__file__).parents[3])
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True, cwd=root)
    assert done.stdout == "nobody\nnobody\n"
