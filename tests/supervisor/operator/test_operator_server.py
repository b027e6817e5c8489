"""Who gets an answer from the supervisor, and who does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from messages.lifecycle.tree import ChildState, CommandTaken, StatusReport, StatusWanted, StopWanted, TreeState
from messages.transport.mailbox import Delivery
from messages.wire.message import Message
from supervisor.children.child_record import ChildRecord
from supervisor.operator.operator_server import OperatorServer
from tests.support.supervisor.trees import group


class Post:
    """Records what is connected and sent; stands for mailbox and commands."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.connected: dict[str, str] = {}
        self.commands: list[str] = []

    def connect(self, name: str, incarnation: int, endpoint: str) -> None:
        self.connected[name] = endpoint

    def disconnect(self, name: str) -> None:
        self.connected.pop(name, None)

    def send(self, name: str, message: Message) -> None:
        self.sent.append((name, message))

    def stop(self) -> None:
        self.commands.append("stop")


class Children:
    """Stands for the child manager of one ready gateway."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self.record_by_name = {"gateway/0": ChildRecord(group("gateway/0").children[0], state=ChildState.READY, incarnation=4)}

    def send(self, record: ChildRecord, message: Message) -> None:
        self._post.send(record.name, message)


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
def server(post: Post) -> OperatorServer:
    def answer(with_metrics: bool) -> StatusReport:
        return StatusReport(state=TreeState.SERVING, uptime_s=1.0, model="m", url="u", children=[])

    return OperatorServer(Path("/run/t"), post, Children(post), post, answer, lambda _: "", lambda _: "")  # type: ignore[arg-type]


async def test_an_operator_inside_the_run_directory_is_answered(server: OperatorServer, post: Post) -> None:
    assert server.handle(Delivery("operator/9", 1, StatusWanted(reply_to="ipc:///run/t/operator-9", metrics=False)))
    assert [(name, type(message)) for name, message in post.sent] == [("operator/9", StatusReport)]


@pytest.mark.parametrize("reply_to", ["tcp://10.0.0.1:1", "ipc:///run/other/operator", "ipc:///run/t2/operator", ""])
async def test_an_operator_elsewhere_is_not(server: OperatorServer, post: Post, reply_to: str) -> None:
    server.handle(Delivery("operator/9", 1, StatusWanted(reply_to=reply_to, metrics=False)))
    assert (post.sent, post.connected) == ([], {})


async def test_a_gateway_is_answered_over_its_own_link(server: OperatorServer, post: Post) -> None:
    server.handle(Delivery("gateway/0", 4, StatusWanted(reply_to="ignored", metrics=True)))
    assert [name for name, _ in post.sent] == ["gateway/0"]
    assert post.connected == {}


async def test_an_old_incarnation_of_a_gateway_is_not_answered(server: OperatorServer, post: Post) -> None:
    server.handle(Delivery("gateway/0", 3, StatusWanted(reply_to="ignored", metrics=True)))
    assert post.sent == []


async def test_an_order_is_carried_out_and_confirmed(server: OperatorServer, post: Post) -> None:
    server.handle(Delivery("operator/9", 1, StopWanted(reply_to="ipc:///run/t/operator-9")))
    assert post.commands == ["stop"]
    assert isinstance(post.sent[0][1], CommandTaken)


async def test_links_to_operators_are_bounded(server: OperatorServer, post: Post) -> None:
    for number in range(100):
        reply_to = f"ipc:///run/t/operator-{number}"
        server.handle(Delivery(f"operator/{number}", 1, StatusWanted(reply_to=reply_to, metrics=False)))
    assert len(post.connected) == 64
    await asyncio.sleep(0)
