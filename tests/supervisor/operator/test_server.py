"""Who gets an answer from the supervisor, and who does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from messages.lifecycle import ChildState, OrderTaken, StatusReport, StatusWanted, StopWanted, TreeState
from messages.transport.mailbox import Delivery
from messages.wire.message import Message
from supervisor.children.child_record import ChildRecord
from supervisor.operator.server import FrontDesk
from tests.support.supervisor.trees import group


class Post:
    """Records what is connected and said; plays mailbox, nursery and orders."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Message]] = []
        self.connected: dict[str, str] = {}
        self.orders: list[str] = []
        self.record_by_name = {"gateway/0": ChildRecord(group("gateway/0").children[0], state=ChildState.READY, incarnation=4)}

    def connect(self, name: str, incarnation: int, endpoint: str) -> None:
        self.connected[name] = endpoint

    def disconnect(self, name: str) -> None:
        self.connected.pop(name, None)

    def send(self, name: str, message: Message) -> None:
        self.said.append((name, message))

    def tell(self, record: ChildRecord, message: Message) -> None:
        self.send(record.name, message)

    def stop(self) -> None:
        self.orders.append("stop")


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def desk(post: Post) -> FrontDesk:
    def answer(with_metrics: bool) -> StatusReport:
        return StatusReport(state=TreeState.SERVING, uptime_s=1.0, model="m", url="u", children=[])

    return FrontDesk(Path("/run/t"), post, post, post, answer)  # type: ignore[arg-type]


async def test_an_operator_inside_the_run_directory_is_answered(desk: FrontDesk, post: Post) -> None:
    assert desk.handle(Delivery("operator/9", 1, StatusWanted(reply_to="ipc:///run/t/operator-9", metrics=False)))
    assert [(name, type(message)) for name, message in post.said] == [("operator/9", StatusReport)]


@pytest.mark.parametrize("reply_to", ["tcp://10.0.0.1:1", "ipc:///run/other/operator", "ipc:///run/t2/operator", ""])
async def test_an_operator_elsewhere_is_not(desk: FrontDesk, post: Post, reply_to: str) -> None:
    desk.handle(Delivery("operator/9", 1, StatusWanted(reply_to=reply_to, metrics=False)))
    assert (post.said, post.connected) == ([], {})


async def test_a_gateway_is_answered_over_its_own_link(desk: FrontDesk, post: Post) -> None:
    desk.handle(Delivery("gateway/0", 4, StatusWanted(reply_to="ignored", metrics=True)))
    assert [name for name, _ in post.said] == ["gateway/0"]
    assert post.connected == {}


async def test_an_old_life_of_a_gateway_is_not_answered(desk: FrontDesk, post: Post) -> None:
    desk.handle(Delivery("gateway/0", 3, StatusWanted(reply_to="ignored", metrics=True)))
    assert post.said == []


async def test_an_order_is_carried_out_and_confirmed(desk: FrontDesk, post: Post) -> None:
    desk.handle(Delivery("operator/9", 1, StopWanted(reply_to="ipc:///run/t/operator-9")))
    assert post.orders == ["stop"]
    assert isinstance(post.said[0][1], OrderTaken)


async def test_links_to_operators_are_bounded(desk: FrontDesk, post: Post) -> None:
    for number in range(100):
        reply_to = f"ipc:///run/t/operator-{number}"
        desk.handle(Delivery(f"operator/{number}", 1, StatusWanted(reply_to=reply_to, metrics=False)))
    assert len(post.connected) == 64
    await asyncio.sleep(0)
