"""A gateway gives its connections to every custodian that comes, and gets back what a dead gateway has left."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from actors.gateway.custody import gateway_custody
from actors.gateway.custody.gateway_custody import GatewayCustody
from actors.gateway.custody.hold import MAX_PATH, HeldResponse, Hold
from actors.gateway.http.browser_rules import MAX_ORIGIN
from messages.descriptors.packets import MAX_META_BYTES
from messages.descriptors.server import DescriptorServer, listen_at
from messages.descriptors.table import DescriptorTable
from messages.wire.message import MAX_SHORT_CHARACTERS
from tests.support.custody.descriptor_store import keys_at
from tests.support.custody.held_connections import Buffer, custody, tcp_pair, wait_kept
from tests.support.waiting import DEADLINE_S, until


def begun_holds(custody: GatewayCustody, n: int) -> tuple[list[tuple[socket.socket, socket.socket]], list[Hold]]:
    """Connections "0", "1", ... whose responses have begun: their sockets here and at their clients, and their holds."""
    pairs = [tcp_pair() for _ in range(n)]
    holds = [Hold(custody, str(nth), ours.fileno(), Buffer()) for nth, (ours, _) in enumerate(pairs)]
    for hold in holds:
        hold.begin("r", "/", 0, "", is_alone=True, keeps_alive=True)
    return pairs, holds


async def test_the_next_incarnation_gets_the_newest_response_of_each_connection(tmp_path: Path) -> None:
    server = DescriptorServer(tmp_path / "c", DescriptorTable(8))
    dead = custody(tmp_path / "c")
    dead.open()
    ours, client = tcp_pair()
    ours.send(b"earlier")
    hold = Hold(dead, "k", ours.fileno(), Buffer())
    hold.begin("first", "/a", 0, "", is_alone=True, keeps_alive=True)
    hold.begin("second", "/b", 3, "https://page", is_alone=False, keeps_alive=False)
    await wait_kept(server, 1)
    (left,) = await custody(tmp_path / "c").claim()
    assert left.key == "k"
    assert left.response == HeldResponse("second", "/b", 3, 14, -1, keeps_alive=False, origin="https://page")
    left.socket.send(b", later")
    left.close()
    assert client.recv(100, socket.MSG_WAITALL) == b"earlier, later"
    dead.close()
    server.close()
    ours.close()
    client.close()


async def test_the_longest_note_of_a_response_is_taken(tmp_path: Path) -> None:
    """One that the custodian refuses ends the connection to it, and with it what others are held for."""
    server = DescriptorServer(tmp_path / "c", DescriptorTable(8))
    mine = custody(tmp_path / "c")
    mine.open()
    ours, client = tcp_pair()
    request, path, origin = "~" * MAX_SHORT_CHARACTERS, "\ufffd" * MAX_PATH, "\xff" * MAX_ORIGIN
    hold = Hold(mine, "k" * 32, ours.fileno(), Buffer())
    hold.begin(request, path, 10**18, origin, 10**18, is_alone=True, keeps_alive=True)
    await wait_kept(server, 1)
    assert len(hold.meta) <= MAX_META_BYTES
    assert (mine.is_connected, mine.n_connected) == (True, 1)
    mine.close()
    server.close()
    ours.close()
    client.close()


async def test_a_response_that_is_made_again_keeps_the_newest_run_of_its_request(tmp_path: Path) -> None:
    """Its beginning belongs to older runs, and its client has that already."""
    mine = custody(tmp_path / "c")
    ours, client = tcp_pair()
    response = HeldResponse("r", "/a", 0, 0, 10, keeps_alive=True, run=3)
    hold = Hold(mine, "k", ours.fileno(), Buffer(), response)
    hold.begin("r", "/", 0, "", is_alone=True, keeps_alive=True)
    for run in (1, 2, 3):
        hold.note_run(run)
        assert hold.response == response
    hold.note_run(4)
    assert hold.response == msgspec.structs.replace(response, run=4)
    ours.close()
    client.close()


async def test_the_next_custodian_is_given_everything_but_what_was_dropped(tmp_path: Path) -> None:
    first = DescriptorServer(tmp_path / "c", DescriptorTable(8))
    mine = custody(tmp_path / "c")
    mine.open()
    pairs, holds = begun_holds(mine, 3)
    await wait_kept(first, 3)
    first.close()
    holds[1].close()
    assert pairs[1][1].recv(1) == b"", "its client is told at once, whatever the custodian has"
    second = DescriptorServer(tmp_path / "c", DescriptorTable(8))
    await wait_kept(second, 2)
    assert await keys_at(tmp_path / "c") == ["0", "2"]
    mine.close()
    await wait_kept(second, 0)
    second.close()
    for pair in pairs:
        for one in pair:
            one.close()


async def test_a_custodian_that_is_announced_is_given_everything_at_once(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    mine = GatewayCustody("gateway/0", tmp_path / "c", lambda delay_s, call: loop.call_later(1000.0, call))
    mine.open()
    ours, client = tcp_pair()
    Hold(mine, "k", ours.fileno(), Buffer()).begin("r", "/a", 0, "", is_alone=True, keeps_alive=True)
    server = DescriptorServer(tmp_path / "c", DescriptorTable(8))
    mine.open_now()
    await wait_kept(server, 1)
    mine.open_now()
    assert mine.n_connected == 1
    mine.close()
    server.close()
    ours.close()
    client.close()


async def test_what_nobody_goes_on_with_is_dropped_and_what_goes_on_stays(tmp_path: Path) -> None:
    """Until then the next incarnation may die as well: the custodian has every connection, and its newest response."""
    server = DescriptorServer(tmp_path / "c", DescriptorTable(8))
    dead = custody(tmp_path / "c")
    dead.open()
    pairs = [tcp_pair() for _ in range(2)]
    for nth, (ours, _) in enumerate(pairs):
        Hold(dead, str(nth), ours.fileno(), Buffer()).begin("r", "/", 0, "", is_alone=True, keeps_alive=True)
    await wait_kept(server, 2)
    heir = custody(tmp_path / "c")
    found = await heir.claim()
    heir.open()
    resumed = Hold(heir, "1", found[1].socket.fileno(), Buffer(), found[1].response)
    resumed.begin("r", "/", 0, "", run=1, is_alone=True, keeps_alive=True)
    expected = msgspec.structs.replace(found[1].response, run=1)
    assert resumed.response == expected, "the response goes on: it is not another one"
    await asyncio.sleep(0)
    again = await custody(tmp_path / "c").claim()
    assert {left.key: left.response for left in again} == {"0": found[0].response, "1": expected}
    for left in again:
        left.socket.close()
    found[0].close()
    heir.drop_claimed()
    await wait_kept(server, 1)
    assert await keys_at(tmp_path / "c") == ["1"]
    heir.close()
    server.close()
    for one in (*(one for pair in pairs for one in pair), found[1].socket):
        one.close()


async def test_connections_that_a_silent_custodian_did_not_give_back_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the custodian holds them for as long as the gateway lives, and their clients wait for an answer."""
    server = DescriptorServer(tmp_path / "c", DescriptorTable(8))
    dead, (lost, client), (ours, other) = custody(tmp_path / "c"), tcp_pair(), tcp_pair()
    dead.open()
    Hold(dead, "lost", lost.fileno(), Buffer()).begin("first", "/a", 0, "", is_alone=True, keeps_alive=True)
    await wait_kept(server, 1)
    lost.close()
    monkeypatch.setattr(gateway_custody, "_TAKE_S", 0.0)
    successor = custody(tmp_path / "c")
    assert await successor.claim() == []
    Hold(successor, "mine", ours.fileno(), Buffer()).begin("second", "/a", 0, "", is_alone=True, keeps_alive=True)
    successor.open()
    loop = asyncio.get_running_loop()
    client.setblocking(False)
    assert await asyncio.wait_for(loop.sock_recv(client, 100), DEADLINE_S) == b""
    assert await keys_at(tmp_path / "c") == ["mine"]
    for one in (dead, successor, server, ours, client, other):
        one.close()


async def test_a_custodian_whose_socket_is_put_back_still_gives_the_connections(tmp_path: Path) -> None:
    server = DescriptorServer(tmp_path / "c", DescriptorTable(8))
    dead, (ours, client) = custody(tmp_path / "c"), tcp_pair()
    dead.open()
    Hold(dead, "k", ours.fileno(), Buffer()).begin("first", "/a", 0, "", is_alone=True, keeps_alive=True)
    await wait_kept(server, 1)
    (tmp_path / "c").rename(tmp_path / "elsewhere")
    claim = asyncio.create_task(custody(tmp_path / "c").claim())
    await asyncio.sleep(0)
    (tmp_path / "elsewhere").rename(tmp_path / "c")
    (left,) = await asyncio.wait_for(claim, DEADLINE_S)
    assert left.key == "k"
    for one in (dead, left, server, ours, client):
        one.close()


async def test_connections_are_closed_if_the_custodian_could_not_be_reached_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has removed its socket; their clients would wait for an answer."""
    server = DescriptorServer(tmp_path / "c", DescriptorTable(8))
    dead, (lost, client) = custody(tmp_path / "c"), tcp_pair()
    dead.open()
    Hold(dead, "lost", lost.fileno(), Buffer()).begin("first", "/a", 0, "", is_alone=True, keeps_alive=True)
    await wait_kept(server, 1)
    lost.close()
    (tmp_path / "c").rename(tmp_path / "elsewhere")
    monkeypatch.setattr(gateway_custody, "_FOUND_S", 0.0)
    successor = custody(tmp_path / "c")
    assert await successor.claim() == []
    (tmp_path / "elsewhere").rename(tmp_path / "c")
    successor.open()
    client.setblocking(False)
    assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 100), DEADLINE_S) == b""
    for one in (dead, successor, server, client):
        one.close()


async def test_without_a_custodian_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_custody, "_FOUND_S", 0.0)
    assert await custody(tmp_path / "nobody").claim() == []


async def test_what_the_custodian_had_no_room_for_is_given_again_until_it_has(tmp_path: Path) -> None:
    server = DescriptorServer(tmp_path / "c", DescriptorTable(2))
    mine = custody(tmp_path / "c")
    mine.open()
    pairs, holds = begun_holds(mine, 6)
    left = set(range(6))
    async with asyncio.timeout(DEADLINE_S):
        while left:  # one that is closed may be kept for a moment, and the next one is not there at once
            for nth in left & {int(key) for key in await keys_at(tmp_path / "c")}:
                holds[nth].close()
                left.discard(nth)
    await wait_kept(server, 0)
    mine.close()
    server.close()
    for pair in pairs:
        for one in pair:
            one.close()


async def test_a_custodian_that_was_long_there_is_followed_at_once_and_one_that_fails_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two custodians what a gateway sends waits in the socket: the sooner it is there, the less its death cuts."""
    loop, pauses_s = asyncio.get_running_loop(), []

    def later(delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        pauses_s.append(delay_s)
        return loop.call_later(0.0, call)

    monkeypatch.setattr(gateway_custody, "_RETRY_S", 1000.0)
    mine = GatewayCustody("gateway/0", tmp_path / "c", later)
    listener = listen_at(tmp_path / "c")
    listener.setblocking(False)
    mine.open()
    for nth in range(4):
        if nth == 3:
            monkeypatch.setattr(gateway_custody, "_RETRY_S", -1.0)  # every connection has lasted longer
        connection, _ = await asyncio.wait_for(loop.sock_accept(listener), DEADLINE_S)
        connection.close()
        await until(lambda n=nth: len(pauses_s) == n + 1)
    assert pauses_s == [0.01, 0.02, 0.04, 0.0]
    mine.close()
    listener.close()
