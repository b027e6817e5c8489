"""The order of mail and lives: a dead life's mail is dropped, an early one's waits until its sender is announced."""

from __future__ import annotations

from messages.child import Child, SenderState
from messages.generation.sequences import Ack
from messages.lifecycle.lifecycle import Peer, PeerDown, PeerUp, Progress, Welcome
from messages.transport.mailbox import Delivery, MemoryMailbox, MemoryNetwork
from tests.support.memory_cluster import spawn_spec_of


class _Life:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def peer_up(self, peer: Peer) -> None:
        self.seen.append(("up", peer.name))

    def peer_down(self, name: str, incarnation: int) -> None:
        self.seen.append(("down", name))

    def drain(self, deadline_s: float) -> None: ...
    def beat(self, with_metrics: bool) -> Progress:
        return Progress(steps=1, busy_s=0.0, statistics={"with_metrics": float(with_metrics)}, metrics=[])

    def abandoned(self) -> None: ...


def from_gateway(incarnation: int) -> Delivery:
    return Delivery("gateway/0", incarnation, Ack(up_to=1))


def test_incarnations_are_told_apart() -> None:
    mailbox = MemoryMailbox(MemoryNetwork(), "scheduler/0", 1)
    child = Child(spawn_spec_of("scheduler/0", None), mailbox, _Life())
    assert child.sender_state(Delivery("supervisor/0", 1, Ack(up_to=1))) is SenderState.ALIVE
    assert child.sender_state(from_gateway(1)) is SenderState.UNANNOUNCED
    peer = Peer(name="gateway/0", incarnation=1, endpoint="memory://g")
    child.filter_lifecycle([Delivery("supervisor/0", 1, PeerUp(peer=peer))])
    assert child.sender_state(from_gateway(1)) is SenderState.ALIVE
    assert child.sender_state(from_gateway(2)) is SenderState.UNANNOUNCED
    child.filter_lifecycle([Delivery("supervisor/0", 1, PeerDown(name="gateway/0", incarnation=1))])
    assert child.sender_state(from_gateway(1)) is SenderState.DEAD
    assert child.sender_state(from_gateway(2)) is SenderState.UNANNOUNCED


def test_deaths_in_a_welcome_count_before_its_peers() -> None:
    """A gang must not be completed by a rank whose death an earlier supervisor has kept to itself."""
    life = _Life()
    child = Child(spawn_spec_of("scheduler/0", None), MemoryMailbox(MemoryNetwork(), "scheduler/0", 1), life)
    old, new = (Peer(name=f"worker/0.{rank}", incarnation=2 - rank, endpoint="memory://w") for rank in (1, 0))
    child.filter_lifecycle([Delivery("supervisor/0", 1, PeerUp(peer=old))])
    death = PeerDown(name="worker/0.1", incarnation=1, cause="crashed")
    child.filter_lifecycle([Delivery("supervisor/0", 2, Welcome(peers=[new], deaths=[death]))])
    assert life.seen == [("up", "worker/0.1"), ("down", "worker/0.1"), ("up", "worker/0.0")]
    assert child.deaths == {"worker/0.1": death}


async def test_every_fourth_beat_carries_metrics() -> None:
    network = MemoryNetwork()
    spawn_spec = spawn_spec_of("scheduler/0", None)
    supervisor = MemoryMailbox(network, "supervisor/0", spawn_spec.supervisor_incarnation, spawn_spec.supervisor_endpoint)
    child = Child(spawn_spec, MemoryMailbox(network, "scheduler/0", 1), _Life())
    child.hello()
    child.ready({})
    for _ in range(6):
        child._beat()
    beats = [d.message for d in await supervisor.wait_mail() if isinstance(d.message, Progress)]
    assert [beat.statistics["with_metrics"] for beat in beats] == [True, False, False, False, True, False]
    child.stopped()
