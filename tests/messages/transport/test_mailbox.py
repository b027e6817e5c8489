"""One contract, two mailboxes: what holds in memory holds over ZeroMQ."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq

from messages.errors import MailboxFull, UnknownPeer
from messages.generation.sequences import Ack, Cancel
from messages.lifecycle.tree import StatusWanted
from messages.transport import outbox as outbox_module
from messages.transport.arrivals import MAX_OPERATORS
from messages.transport.mailbox import Delivery, Mailbox, MemoryMailbox, MemoryNetwork
from messages.transport.outbox import WINDOW_MESSAGES
from messages.transport.zmq_mailbox import ZmqMailbox
from tests.support.waiting import next_turn

DEADLINE_S = 60.0
Make = Callable[[str, int], Mailbox]


@pytest.fixture(params=["memory", "zmq"])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Mailbox] = []
    network = MemoryNetwork()

    def build(name: str, incarnation: int) -> Mailbox:
        if request.param == "memory":
            made.append(MemoryMailbox(network, name, incarnation))
        else:
            made.append(ZmqMailbox(name, incarnation, f"ipc://{tmp_path}/{name.replace('/', '-')}.{incarnation}"))
        return made[-1]

    yield build
    for mailbox in made:
        await mailbox.close()


async def take(mailbox: Mailbox, n: int) -> list[Delivery]:
    got: list[Delivery] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(got) < n:
            got += await mailbox.wait_mail()
    return got


def numbers(got: list[Delivery]) -> list[int]:
    """What the Acks among them say."""
    return [delivery.message.up_to for delivery in got if isinstance(delivery.message, Ack)]


def pair(make: Make) -> tuple[Mailbox, Mailbox]:
    gateway, scheduler = make("gateway/0", 1), make("scheduler/0", 1)
    gateway.connect("scheduler/0", 1, scheduler.endpoint)
    scheduler.connect("gateway/0", 1, gateway.endpoint)
    return gateway, scheduler


async def test_an_inbox_whose_file_was_removed_is_found_again(tmp_path: Path) -> None:
    scheduler, gateway = (ZmqMailbox(name, 1, f"ipc://{tmp_path}/{name[:2]}") for name in ("scheduler/0", "gateway/0"))
    try:
        (tmp_path / "sc").unlink()
        gateway.connect("scheduler/0", 1, scheduler.endpoint)
        gateway.send("scheduler/0", Ack(up_to=7))
        assert numbers(await take(scheduler, 1)) == [7]
    finally:
        await gateway.close()
        await scheduler.close()


async def test_mail_arrives_in_order_with_its_sender(make: Make) -> None:
    gateway, scheduler = pair(make)
    for number in range(100):
        gateway.send("scheduler/0", Ack(up_to=number))
    got = await take(scheduler, 100)
    assert numbers(got) == list(range(100))
    assert {(d.sender, d.sender_incarnation) for d in got} == {("gateway/0", 1)}
    assert scheduler.statistics().received == 100
    assert scheduler.statistics().lost == 0


async def test_unknown_peer_is_an_error(make: Make) -> None:
    gateway, _ = pair(make)
    with pytest.raises(UnknownPeer, match="scheduler/7"):
        gateway.send("scheduler/7", Ack(up_to=1))
    gateway.disconnect("scheduler/0")
    with pytest.raises(UnknownPeer):
        gateway.send("scheduler/0", Ack(up_to=1))


async def test_without_credit_mail_waits_and_then_fills_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "BACKLOG_MESSAGES", 500)
    gateway, scheduler = pair(make)
    gateway.send("scheduler/0", Ack(up_to=0))
    await take(scheduler, 1)
    sent = 1

    def fill() -> None:
        nonlocal sent
        while True:
            gateway.send("scheduler/0", Ack(up_to=sent))
            sent += 1

    with pytest.raises(MailboxFull, match="scheduler/0"):
        fill()
    assert sent >= 1 + 500
    got = await take(scheduler, sent - 1)
    assert numbers(got) == list(range(1, sent))
    async with asyncio.timeout(DEADLINE_S):
        while gateway.statistics().backlog:
            await next_turn()


async def test_far_more_mail_than_the_window_flows_with_credits(make: Make) -> None:
    gateway, scheduler = pair(make)
    total = 5 * WINDOW_MESSAGES
    for number in range(total):
        gateway.send("scheduler/0", Ack(up_to=number))
    got = await take(scheduler, total)
    assert numbers(got) == list(range(total))


async def test_mail_for_an_earlier_incarnation_is_dropped_and_counted(make: Make) -> None:
    gateway = make("gateway/0", 1)
    scheduler = make("scheduler/0", 2)
    gateway.connect("scheduler/0", 1, scheduler.endpoint)
    gateway.send("scheduler/0", Ack(up_to=1))
    gateway.connect("scheduler/0", 2, scheduler.endpoint)
    gateway.send("scheduler/0", Ack(up_to=2))
    got = await take(scheduler, 1)
    assert numbers(got) == [2]


async def test_what_the_routes_forbid_is_refused(make: Make) -> None:
    gateway, scheduler = pair(make)
    scheduler.send("gateway/0", Ack(up_to=1))  # only gateways say Ack
    scheduler.send("gateway/0", Cancel(attempt=1, why="deadline"))
    gateway.send("scheduler/0", Ack(up_to=1))
    await take(scheduler, 1)
    async with asyncio.timeout(DEADLINE_S):
        while gateway.statistics().refused < 2:
            await next_turn()
    assert gateway.statistics().received == 0


async def test_a_new_incarnation_of_a_sender_makes_the_old_one_stale(make: Make) -> None:
    scheduler = make("scheduler/0", 1)
    old, new = make("gateway/0", 1), make("gateway/0", 2)
    for mailbox in (new, old):
        mailbox.connect("scheduler/0", 1, scheduler.endpoint)
    new.send("scheduler/0", Ack(up_to=2))
    await take(scheduler, 1)
    old.send("scheduler/0", Ack(up_to=1))
    async with asyncio.timeout(DEADLINE_S):
        while not scheduler.statistics().stale:
            await next_turn()
    assert scheduler.statistics().received == 1


async def test_answers_to_a_dead_process_do_not_reach_the_next_one_at_its_address() -> None:
    """Both have a link with the same number, and what the first one sent says nothing about what the second one sends."""
    network = MemoryNetwork()
    scheduler = MemoryMailbox(network, "scheduler/0", 1)
    old, new = (MemoryMailbox(network, "gateway/0", incarnation, "memory://gateway") for incarnation in (1, 2))
    old.connect("scheduler/0", 1, scheduler.endpoint)
    new.connect("scheduler/0", 1, scheduler.endpoint)
    old.send("scheduler/0", Ack(up_to=1))
    await take(scheduler, 1)
    network.mailbox_by_endpoint.pop(scheduler.endpoint)  # what the new one sends waits for its connection
    new.send("scheduler/0", Ack(up_to=2))
    scheduler._core.handled()
    scheduler._core.beat()  # answers the old one
    network.mailbox_by_endpoint[scheduler.endpoint] = scheduler
    new.send("scheduler/0", Ack(up_to=3))
    assert numbers(await take(scheduler, 2)) == [2, 3]
    for mailbox in (scheduler, old, new):
        await mailbox.close()


async def test_garbage_on_the_socket_harms_nobody(tmp_path: Path) -> None:
    scheduler = ZmqMailbox("scheduler/0", 1, f"ipc://{tmp_path}/s")
    gateway = ZmqMailbox("gateway/0", 1, f"ipc://{tmp_path}/g")
    gateway.connect("scheduler/0", 1, scheduler.endpoint)
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.connect(scheduler.endpoint)
    for frames in ([b""], [b"x"] * 3, [b"\x91" * 9, b"", b""], [b"a"] * 9):
        stranger.send_multipart(frames)
    async with asyncio.timeout(DEADLINE_S):
        while scheduler.statistics().refused < 4:
            await next_turn()
    gateway.send("scheduler/0", Ack(up_to=1))
    assert len(await take(scheduler, 1)) == 1
    stranger.close(linger=0)
    context.term()
    await gateway.close()
    await scheduler.close()


async def test_handshakes_that_never_end_hold_up_nobody(tmp_path: Path) -> None:
    scheduler = ZmqMailbox("scheduler/0", 1, f"ipc://{tmp_path}/s")
    gateway = ZmqMailbox("gateway/0", 1, f"ipc://{tmp_path}/g")
    with ExitStack() as stack:
        for nth in range(200):
            stranger = stack.enter_context(socket.socket(socket.AF_UNIX))
            stranger.settimeout(DEADLINE_S)
            stranger.connect(str(tmp_path / "s"))
            stranger.sendall(b"\xff\0\0\0\0\0\0\0\x01\x7f"[: nth % 11])  # a part of the greeting
        gateway.connect("scheduler/0", 1, scheduler.endpoint)
        gateway.send("scheduler/0", Ack(up_to=1))
        assert len(await take(scheduler, 1)) == 1
    await gateway.close()
    await scheduler.close()


async def test_passing_operators_leave_nothing_behind_and_disturb_no_peer() -> None:
    network = MemoryNetwork()
    supervisor, gateway = MemoryMailbox(network, "supervisor/0", 1), MemoryMailbox(network, "gateway/0", 1)
    gateway.connect("supervisor/0", 1, supervisor.endpoint)
    for pid in range(1, 2 * MAX_OPERATORS):
        operator = MemoryMailbox(network, f"operator/{pid}", pid)
        operator.connect("supervisor/0", 1, supervisor.endpoint)
        operator.send("supervisor/0", StatusWanted(reply_to=operator.endpoint, metrics=False))
        gateway.send("supervisor/0", StatusWanted(reply_to=gateway.endpoint, metrics=False))
        await take(supervisor, 2)
        await operator.close()
    assert len(supervisor._core.arrivals) <= MAX_OPERATORS + 1
    assert supervisor._core.arrivals.incarnation_of("gateway/0") == 1
    assert supervisor.statistics().lost == 0


async def test_the_trace_of_a_request_comes_with_its_message(make: Make) -> None:
    gateway, scheduler = pair(make)
    gateway.send("scheduler/0", Ack(up_to=1), bytes(range(16)))
    gateway.send("scheduler/0", Ack(up_to=2))
    assert [delivery.trace for delivery in await take(scheduler, 2)] == [bytes(range(16)), b""]
