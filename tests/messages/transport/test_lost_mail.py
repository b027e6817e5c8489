"""Between two living mailboxes nothing is lost and nothing comes twice, whatever happens to messages and connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs

from messages.generation.sequences import Ack
from messages.transport import mailbox_core, outbox, zmq_mailbox
from messages.transport.mailbox import Mailbox, MemoryMailbox, MemoryNetwork
from messages.transport.outbox import WINDOW_MESSAGES, Outbox
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.codec import decode_envelope
from messages.wire.envelope import LinkAnswer
from tests.support.byte_proxy import ByteProxy, byte_proxy

DEADLINE_S = 60.0
BEAT_S = 0.01
Pair = tuple[Mailbox, Mailbox]


@pytest.fixture(autouse=True)
def beat_s(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How often a mailbox looks for what is not acknowledged: often, unless a test says otherwise."""
    monkeypatch.setattr(zmq_mailbox, "BEAT_S", getattr(request, "param", BEAT_S))


@pytest.fixture(params=["memory", "zmq"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """A gateway's mailbox with a link to a scheduler's."""
    network = MemoryNetwork()
    network.beat_s = BEAT_S
    if request.param == "memory":
        gateway, scheduler = MemoryMailbox(network, "gateway/0", 1), MemoryMailbox(network, "scheduler/0", 1)
    else:
        gateway, scheduler = (ZmqMailbox(name, 1, f"ipc://{tmp_path}/{name[:1]}") for name in ("gateway/0", "scheduler/0"))
    gateway.connect("scheduler/0", 1, scheduler.endpoint)
    yield gateway, scheduler
    await gateway.close()
    await scheduler.close()


@pytest.fixture
async def proxied(tmp_path: Path) -> AsyncIterator[tuple[Mailbox, Mailbox, ByteProxy]]:
    """The same over ZeroMQ, through a proxy."""
    gateway, scheduler = (ZmqMailbox(name, 1, f"ipc://{tmp_path}/{name[:1]}") for name in ("gateway/0", "scheduler/0"))
    async with byte_proxy(tmp_path / "p", tmp_path / "s") as proxy:
        gateway.connect("scheduler/0", 1, proxy.endpoint)
        yield gateway, scheduler, proxy
        await gateway.close()
        await scheduler.close()


def disturb(monkeypatch: pytest.MonkeyPatch, dose: Callable[[], int]) -> None:
    """Let every message, question and answer arrive `dose()` times."""
    arrive, handle_answer = mailbox_core.MailboxCore.arrive, Outbox.handle_answer

    def arrive_so_often(core: mailbox_core.MailboxCore, route: bytes, frames: list[bytes]) -> None:
        for _ in range(dose()):
            arrive(core, route, frames)

    def take_so_often(box: Outbox, answer: LinkAnswer) -> bool:
        repeats = [handle_answer(box, answer) for _ in range(dose())]
        return any(repeats)

    monkeypatch.setattr(mailbox_core.MailboxCore, "arrive", arrive_so_often)
    monkeypatch.setattr(Outbox, "handle_answer", take_so_often)


async def take(mailbox: Mailbox, n: int) -> list[int]:
    """The numbers in the next `n` Acks."""
    got: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(got) < n:
            got += [delivery.message.up_to for delivery in await mailbox.wait_mail() if isinstance(delivery.message, Ack)]
    return got


async def send(mailbox: Mailbox, numbers: range, pause_every: int = 50) -> None:
    for number in numbers:
        mailbox.send("scheduler/0", Ack(up_to=number))
        if number % pause_every == 0:
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(2))
async def test_mail_and_answers_that_are_lost_or_repeated_at_random(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    gateway, scheduler = pair
    disturb(monkeypatch, partial_dose(Random(seed)))
    total = 300
    _, got = await asyncio.gather(send(gateway, range(total)), take(scheduler, total))
    assert got == list(range(total))
    assert scheduler.statistics().lost > 0


def partial_dose(random: Random) -> Callable[[], int]:
    return lambda: random.choices((0, 1, 2), (5, 90, 5))[0]


async def test_a_lost_last_message_is_sent_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, scheduler = pair
    doses = iter([1, 0])
    disturb(monkeypatch, lambda: next(doses, 1))
    gateway.send("scheduler/0", Ack(up_to=1))
    gateway.send("scheduler/0", Ack(up_to=2))
    assert await take(scheduler, 2) == [1, 2]


async def test_a_lost_message_is_logged_and_counted_by_both_sides(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, scheduler = pair
    lose_once(monkeypatch, 2)
    with capture_logs() as lines:
        for number in (1, 2, 3):
            gateway.send("scheduler/0", Ack(up_to=number))
        assert await take(scheduler, 3) == [1, 2, 3]
    lost = [line for line in lines if line["event"] == "link lost"]
    sender, receiver = (next(line for line in lost if line["actor"] == name) for name in ("gateway/0", "scheduler/0"))
    assert (sender["peer"], sender["direction"], sender["messages_sent_again"]) == ("scheduler/0", "to", 2)
    assert (receiver["peer"], receiver["direction"], receiver["messages_missing"]) == ("gateway/0", "from", 1)
    assert gateway.statistics().links_lost >= 1
    assert gateway.statistics().sent_again >= 2
    assert scheduler.statistics().lost >= 1


def test_a_command_of_an_operator_prints_its_answer_alone() -> None:
    mailbox = MemoryMailbox(MemoryNetwork(), "operator/7", 1)
    with capture_logs() as lines:
        mailbox._core.note_lost(Outbox("supervisor/0", 1, link=1), is_reconnected=True)
    assert mailbox.statistics().links_lost == 1
    assert lines == []


def test_a_command_of_an_operator_that_has_ended_is_no_lost_link() -> None:
    mailbox = MemoryMailbox(MemoryNetwork(), "supervisor/0", 1)
    with capture_logs() as lines:
        mailbox._core.note_lost(Outbox("operator/7", 1, link=1), is_reconnected=True)
    assert mailbox.statistics().links_lost == 0
    assert lines == []


def test_a_child_that_answers_late_because_it_starts_is_no_lost_link() -> None:
    mailbox, outbox = MemoryMailbox(MemoryNetwork(), "supervisor/0", 1), Outbox("worker/0.0", 1, link=1)
    with capture_logs() as lines:
        mailbox._core.note_lost(outbox, is_reconnected=True)
        assert (mailbox.statistics().links_lost, lines) == (0, [])
        outbox.handle_answer(LinkAnswer(link=1, handled=0, wanted=0))
        mailbox._core.note_lost(outbox, is_reconnected=True)
    assert mailbox.statistics().links_lost == 1
    assert [line["peer"] for line in lines] == ["worker/0.0"]


def lose_once(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the message with this number be lost when it arrives for the first time."""
    arrive, is_lost = mailbox_core.MailboxCore.arrive, [False]

    def arrive_or_not(core: mailbox_core.MailboxCore, route: bytes, frames: list[bytes]) -> None:
        if not is_lost[0] and frames[1] and decode_envelope(frames[0]).sequence == number:
            is_lost[0] = True
        else:
            arrive(core, route, frames)

    monkeypatch.setattr(mailbox_core.MailboxCore, "arrive", arrive_or_not)


# on a busy machine an acknowledgement may need longer than the quick beat
@pytest.mark.parametrize("beat_s", [DEADLINE_S], indirect=True)
async def test_a_link_that_loses_nothing_says_nothing(pair: Pair) -> None:
    gateway, scheduler = pair
    with capture_logs() as lines:
        await send(gateway, range(3 * WINDOW_MESSAGES))
        assert await take(scheduler, 3 * WINDOW_MESSAGES) == list(range(3 * WINDOW_MESSAGES))
    assert [line for line in lines if line["event"] == "link lost"] == []
    assert gateway.statistics().links_lost == scheduler.statistics().lost == 0


async def test_a_lost_first_message_is_sent_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, scheduler = pair
    doses = iter([0])
    disturb(monkeypatch, lambda: next(doses, 1))
    gateway.send("scheduler/0", Ack(up_to=1))
    gateway.send("scheduler/0", Ack(up_to=2))
    assert await take(scheduler, 2) == [1, 2]


async def test_everything_is_acknowledged_in_the_end_and_nothing_is_said_on_an_idle_link(pair: Pair) -> None:
    gateway, scheduler = pair
    await send(gateway, range(10))
    await take(scheduler, 10)
    waiting = asyncio.ensure_future(scheduler.wait_mail())
    box = outbox_of(gateway)
    async with asyncio.timeout(DEADLINE_S):
        while box._acknowledged < 10:
            await asyncio.sleep(0.001)
    assert not box.beat()
    assert not box.beat()
    waiting.cancel()


async def test_a_second_link_to_the_same_incarnation_begins_anew(pair: Pair) -> None:
    gateway, scheduler = pair
    gateway.send("scheduler/0", Ack(up_to=1))
    assert await take(scheduler, 1) == [1]
    gateway.disconnect("scheduler/0")
    gateway.connect("scheduler/0", 1, scheduler.endpoint)
    gateway.send("scheduler/0", Ack(up_to=2))
    assert await take(scheduler, 1) == [2]


async def test_a_sender_that_is_held_gets_no_credit(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BACKLOG_MESSAGES", 10_000)
    gateway, scheduler = pair
    scheduler.defer(["gateway/0"])
    total = WINDOW_MESSAGES + 100
    await send(gateway, range(total))
    assert await take(scheduler, WINDOW_MESSAGES) == list(range(WINDOW_MESSAGES))
    waiting = asyncio.ensure_future(scheduler.wait_mail())
    box = outbox_of(gateway)
    for _ in range(2):  # it answers what it is asked, and gives no credit
        box._is_answered = False
        async with asyncio.timeout(DEADLINE_S):
            while not box._is_answered:
                await asyncio.sleep(0.001)
    assert gateway.statistics().backlog == 100
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    scheduler.defer([])
    assert await take(scheduler, 100) == list(range(WINDOW_MESSAGES, total))


def outbox_of(mailbox: Mailbox) -> Outbox:
    if isinstance(mailbox, MemoryMailbox):
        return mailbox._outbox["scheduler/0"]
    assert isinstance(mailbox, ZmqMailbox)
    return mailbox._links["scheduler/0"].outbox


@pytest.mark.long  # libzmq has ended a process once when connections were reset under load
async def test_a_connection_that_is_cut_again_and_again_loses_nothing(proxied: tuple[Mailbox, Mailbox, ByteProxy]) -> None:
    gateway, scheduler, proxy = proxied
    got: list[int] = []
    for part in range(5):
        gateway.send("scheduler/0", Ack(up_to=part * 1000))
        got += await take(scheduler, 1)
        await send(gateway, range(part * 1000 + 1, part * 1000 + 1000), pause_every=10)
        proxy.cut()
        got += await take(scheduler, 999)
    assert got == list(range(5000))
    assert proxy.n_connections >= 5


async def test_a_connection_that_is_silent_is_replaced(proxied: tuple[Mailbox, Mailbox, ByteProxy]) -> None:
    """As after a pause of one side, both sides still believe in the connection, and nothing comes through."""
    gateway, scheduler, proxy = proxied
    gateway.send("scheduler/0", Ack(up_to=0))
    assert await take(scheduler, 1) == [0]
    proxy.swallow()
    with capture_logs() as lines:
        await send(gateway, range(1, 100))
        assert await take(scheduler, 99) == list(range(1, 100))
    first = next(line for line in lines if line["event"] == "link lost")
    assert (first["peer"], first["new_connection"]) == ("scheduler/0", True)
    assert first["messages_sent_again"] >= 99, "the answer to the first one may have been swallowed too"
    assert proxy.n_connections >= 2
