"""The child manager over a spawner in memory: no process, no socket; every start and death is the test's own."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from messages.ids import SUPERVISOR
from messages.lifecycle.lifecycle import Cause, Hello, PeerDown, PeerUp, Welcome
from messages.lifecycle.spawn_spec import LISTEN_SOCKET, SpawnSpec
from messages.lifecycle.tree import ChildState
from messages.transport.mailbox import MemoryMailbox, MemoryNetwork
from messages.wire.message import Message
from supervisor.children.child_manager import ChildManager
from supervisor.children.child_record import ChildRecord
from supervisor.children.process import ExitStatus
from supervisor.children.spawner import ignore_exit
from supervisor.directories.register import ChildFacts
from supervisor.directories.rendezvous import Incarnations
from supervisor.directories.run_dir import RunDir
from supervisor.policy.child_spec import Group, Strategy
from tests.support.supervisor.memory_spawner import MemoryProcess, MemorySpawner
from tests.support.supervisor.trees import group

GANG = group("worker/0.0", "worker/0.1", strategy=Strategy.ONE_FOR_ALL, has_rendezvous=True)


@dataclass
class Stage:
    """A child manager, its spawner, the children's inboxes, and the deaths that it has reported."""

    manager: ChildManager
    spawner: MemorySpawner
    network: MemoryNetwork
    deaths: list[tuple[str, int, Cause]]
    inboxes: dict[str, MemoryMailbox] = field(default_factory=dict)

    def record(self, name: str) -> ChildRecord:
        """What the manager knows of a child."""
        return self.manager.record_by_name[name]

    def become_ready(self, *names: str, is_standby: bool = False) -> None:
        """Start these children and let them say Hello and Ready."""
        self.manager.start(names)
        for name in names:
            self.welcome(name)
        for name in names:
            self.manager.became_ready(self.record(name), is_standby)

    def welcome(self, name: str) -> None:
        """Let this child say Hello."""
        record = self.record(name)
        inbox = self.inboxes[name] = MemoryMailbox(self.network, name, record.incarnation, record.endpoint)
        self.manager.welcome(record, Hello(pid=1, endpoint=inbox.endpoint))

    async def received(self, name: str) -> list[Message]:
        """Everything that has come to a child's inbox."""
        return [delivery.message for delivery in await self.inboxes[name].wait_mail()]


@pytest.fixture
def open_stage(tmp_path_factory: pytest.TempPathFactory):
    """`open_stage(groups...)`: a stage with these children, all dead."""
    run_dir = RunDir.acquire(tmp_path_factory.mktemp("run") / "d")

    def opened(*groups: Group) -> Stage:
        network, deaths, spawner = MemoryNetwork(), list[tuple[str, int, Cause]](), MemorySpawner()

        def on_death(record: ChildRecord, incarnation: int, exit_status: ExitStatus, cause: Cause) -> None:
            deaths.append((record.name, incarnation, cause))

        template = SpawnSpec(
            name="",
            incarnation=0,
            endpoint="",
            supervisor_endpoint="memory://supervisor",
            supervisor_incarnation=1,
            run_dir=str(run_dir.path),
            log_format="json",
            log_level="info",
            settings=msgspec.Raw(b"{}"),
        )
        mailbox = MemoryMailbox(network, SUPERVISOR, 1)
        incarnations = Incarnations(run_dir.path / "incarnations.json")
        manager = ChildManager(groups, run_dir, mailbox, template, incarnations, spawner, on_death, has_spares=False)
        return Stage(manager, spawner, network, deaths)

    yield opened
    run_dir.release()


async def test_a_process_is_told_who_it_is(open_stage) -> None:
    [gateway] = group("gateway/0", settings=b'{"a":1}').children
    stage = open_stage(replace(group("gateway/0"), children=(replace(gateway, descriptors={LISTEN_SOCKET: 9}),)))
    started, refusals = stage.manager.start(["gateway/0"])
    spawn_spec = stage.spawner.newest("gateway/0").spawn_spec
    assert ([record.name for record in started], refusals) == (["gateway/0"], [])
    assert (spawn_spec.name, spawn_spec.incarnation, spawn_spec.descriptors) == ("gateway/0", 1, {LISTEN_SOCKET: 9})
    assert bytes(spawn_spec.settings) == b'{"a":1}'
    assert stage.record("gateway/0").state is ChildState.STARTING


async def test_a_gang_shares_incarnation_and_directory(open_stage) -> None:
    stage = open_stage(GANG)
    stage.manager.start(["worker/0.0", "worker/0.1"])
    spawn_specs = [stage.spawner.newest(name).spawn_spec for name in ("worker/0.0", "worker/0.1")]
    assert len({(spawn_spec.incarnation, spawn_spec.gang_dir) for spawn_spec in spawn_specs}) == 1
    assert os.access(spawn_specs[0].gang_dir, os.F_OK)


async def test_the_directory_of_a_gang_goes_with_its_last_rank(open_stage) -> None:
    stage = open_stage(GANG)
    stage.manager.start(["worker/0.0", "worker/0.1"])
    gang_dir = stage.record("worker/0.0").gang_dir
    stage.spawner.newest("worker/0.1").die()
    assert os.access(gang_dir, os.F_OK)
    stage.spawner.newest("worker/0.0").die()
    assert not os.access(gang_dir, os.F_OK)


async def test_a_machine_without_room_refuses_and_nothing_is_started(open_stage) -> None:
    stage = open_stage(GANG, group("gateway/0"))
    stage.spawner.is_full = True
    started, refusals = stage.manager.start(["worker/0.0", "worker/0.1", "gateway/0"])
    assert started == []
    assert [refusal.names for refusal in refusals] == [("worker/0.0", "worker/0.1"), ("gateway/0",)]
    assert stage.record("gateway/0").phase.startswith("cannot start now: ")
    stage.spawner.is_full = False
    assert [record.name for record in stage.manager.start(["gateway/0"])[0]] == ["gateway/0"]


async def test_peers_hear_who_is_up_and_who_is_down(open_stage) -> None:
    stage = open_stage(group("scheduler/0"), group("gateway/0"))
    stage.become_ready("scheduler/0")
    stage.become_ready("gateway/0")
    [welcome] = await stage.received("gateway/0")
    assert isinstance(welcome, Welcome)
    assert [peer.name for peer in welcome.peers] == ["scheduler/0"]
    stage.spawner.newest("gateway/0").die()
    messages = await stage.received("scheduler/0")
    assert [type(message) for message in messages] == [Welcome, PeerUp, PeerDown]
    assert messages[-1] == PeerDown(name="gateway/0", incarnation=1, cause="killed")
    assert stage.deaths == [("gateway/0", 1, "killed")]


async def test_a_welcome_says_which_deaths_the_last_supervisor_may_have_kept_to_itself(open_stage) -> None:
    stage = open_stage(group("worker/0.0"), group("worker/0.1"), group("scheduler/0"))
    stage.spawner.left = [
        (ChildFacts("worker/0.0", 2, died_of="crashed"), MemoryProcess(1, ignore_exit)),
        (ChildFacts("worker/0.1", 3, is_announced=True, predecessor_died_of="hung"), MemoryProcess(2, ignore_exit)),
        (ChildFacts("scheduler/0", 1, is_announced=True), MemoryProcess(3, ignore_exit)),
    ]
    stage.manager.adopt()
    stage.manager.start(["worker/0.0"])
    stage.welcome("worker/0.0")
    stage.manager.became_ready(stage.record("worker/0.0"), is_standby=False)
    stage.welcome("scheduler/0")
    _, welcome = await stage.received("scheduler/0")  # after Adopt; and no PeerUp before the deaths
    assert isinstance(welcome, Welcome)
    assert [(peer.name, peer.incarnation) for peer in welcome.peers] == [("worker/0.0", 3)]
    assert welcome.deaths == [
        PeerDown(name="worker/0.0", incarnation=2, cause="crashed"),
        PeerDown(name="worker/0.1", incarnation=2, cause="hung"),
    ]


async def test_a_standby_is_announced_when_it_is_promoted(open_stage) -> None:
    stage = open_stage(group("worker/0.0"), group("worker/0.0b", standby_of="worker/0.0"), group("scheduler/0"))
    stage.become_ready("worker/0.0b", is_standby=True)
    stage.become_ready("scheduler/0")
    [welcome] = await stage.received("scheduler/0")
    assert welcome == Welcome(peers=[])
    stage.manager.announce(stage.record("worker/0.0b"))
    [up] = await stage.received("scheduler/0")
    assert isinstance(up, PeerUp)
    assert up.peer.name == "worker/0.0b"


async def test_a_killed_child_dies_for_the_reason_of_its_kill(open_stage) -> None:
    stage = open_stage(group("gateway/0"))
    stage.become_ready("gateway/0")
    stage.manager.kill(stage.record("gateway/0"), "frozen", "hung")
    assert stage.record("gateway/0").state is ChildState.ENDING
    stage.spawner.newest("gateway/0").die()
    assert stage.deaths == [("gateway/0", 1, "hung")]
    assert stage.record("gateway/0").last_exit == "killed by SIGKILL (frozen)"


async def test_a_kill_for_want_of_memory_is_told_apart(open_stage) -> None:
    stage = open_stage(group("gateway/0"))
    stage.become_ready("gateway/0")
    stage.spawner.is_out_of_memory = True
    stage.spawner.newest("gateway/0").die()
    assert stage.deaths == [("gateway/0", 1, "out_of_memory")]


async def test_a_new_incarnation_needs_the_proof_of_death(open_stage) -> None:
    stage = open_stage(group("gateway/0"))
    stage.manager.start(["gateway/0"])
    with pytest.raises(AssertionError, match="gateway/0: expected a proven death before a new incarnation"):
        stage.manager.start(["gateway/0"])
    stage.spawner.newest("gateway/0").die()
    stage.manager.start(["gateway/0"])
    assert stage.record("gateway/0").incarnation == 2
