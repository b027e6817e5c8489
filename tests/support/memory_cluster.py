"""A whole server in one event loop: real actors over in-memory mailboxes, a scripted supervisor, the hash-chain engine.

Tests control the order of events: `gang.hold()` keeps results back, `kill` ends an actor without a message, `settle` lets
all actors run for some turns of the event loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, TypeVar

import msgspec

from actors.actor import Actor
from gpu_workers.engine import PlanRefused
from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.process.page_moves import answer_of, move_pages
from gpu_workers.settings import WorkerSettings
from messages import steps
from messages.caches import disk_moves, exchange, page_moves
from messages.generation.replica_state import ReplicaCondition, ReplicaState
from messages.generation.sampling import Sampling
from messages.generation.sequences import Ack, Ending, Refused, Submit, Taken, Tokens
from messages.generation.terms import Terms
from messages.lifecycle import lifecycle
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.transport.mailbox import MemoryMailbox, MemoryNetwork
from messages.wire.arrays import int32s
from tests.support.disk.memory_disk import MemoryDisk
from tests.support.scheduler.memory_exchange import exchange_of
from tests.support.waiting import next_turn

DEADLINE_S = 60.0
ActorT = TypeVar("ActorT", bound=Actor)


def spawn_spec_of(name: str, settings: object, incarnation: int = 1) -> SpawnSpec:
    """The spawn spec of an actor in a MemoryCluster. settings: anything that msgspec can encode as JSON."""
    return SpawnSpec(
        name=name,
        incarnation=incarnation,
        endpoint=f"memory://{name}.{incarnation}",
        supervisor_endpoint="memory://supervisor",
        supervisor_incarnation=1,
        run_dir="",
        log_format="console",
        log_level="error",
        settings=msgspec.Raw(msgspec.json.encode(settings)),
        beat_s=3600.0,
    )


class ScriptedActor:
    """A member of the cluster that is not a real actor: a mailbox whose messages go to `handle`."""

    def __init__(self, cluster: MemoryCluster, name: str, incarnation: int = 1, endpoint: str | None = None) -> None:
        self.cluster, self.name, self.incarnation = cluster, name, incarnation
        self.mailbox = MemoryMailbox(cluster.network, name, incarnation, endpoint)
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            for delivery in await self.mailbox.wait_mail():
                self.handle(delivery.sender, delivery.message)

    def handle(self, sender: str, message: object) -> None:
        """Called for each message that arrives. Subclasses override it; here messages are ignored."""


class Gang(ScriptedActor):
    """Rank 0 of a gang of one: the real hash-chain engine, whose results can be held back."""

    def __init__(
        self,
        cluster: MemoryCluster,
        settings: WorkerSettings,
        incarnation: int = 1,
        before: Gang | None = None,
        replica: int = 0,
    ) -> None:
        """before: an earlier incarnation of this gang, whose memory this one takes over."""
        super().__init__(cluster, f"worker/{replica}.0", incarnation)
        self.replica, self.scheduler = replica, f"scheduler/{replica}"
        self.engine = before.engine if before is not None else HashChainEngine(settings)
        self.memory_generation: int = before.memory_generation if before is not None else incarnation
        self.plans: list[steps.Plan] = []
        self.moves: list[page_moves.MovePages] = []
        self.exchanges: list[exchange.ExchangePages] = []
        self.loses_moves = False  # as if they had not come
        self.move_pages = move_pages
        self.disk = before.disk if before is not None else MemoryDisk()
        self._held: list[steps.Result] | None = None
        self._epoch = 0

    def hold(self) -> None:
        """Keep results back from now on."""
        self._held = []

    def take_held(self) -> list[steps.Result]:
        """The results that were held back. Later ones are, too."""
        held, self._held = self._held or [], []
        return held

    def release_held(self) -> None:
        """Send the results that were held back, and hold back no more."""
        held, self._held = self._held or [], None
        for result in held:
            self.mailbox.send(self.scheduler, result)

    def handle(self, sender: str, message: object) -> None:
        match message:
            case steps.Reset():
                self._epoch = message.epoch
                self.engine.reset(message.epoch)
                generation, capacity = self.memory_generation, self.engine.capacity()
                self.mailbox.send(sender, steps.Capacity(epoch=message.epoch, memory_generation=generation, engine=capacity))
            case page_moves.MovePages() if message.epoch == self._epoch:
                self.moves.append(message)
                if not self.loses_moves:
                    self.mailbox.send(sender, answer_of(message, self.move_pages(self.engine.host_tier, message)))
            case page_moves.ReturnPages() if message.epoch == self._epoch:
                self.engine.return_pages(message.pages)
            case page_moves.ReturnPlaces() if message.epoch == self._epoch and self.engine.host_tier is not None:
                self.engine.host_tier.return_places(message.places)
            case disk_moves.MoveDiskPages() | disk_moves.FindDiskPages() if message.epoch == self._epoch:
                if not self.loses_moves and self.engine.host_tier is not None:
                    answer = self.disk.move(self.engine.host_tier, message)
                    if answer is not None:
                        self.mailbox.send(sender, answer)
            case exchange.ExchangePages() if message.epoch == self._epoch:
                self.exchanges.append(message)
                if not self.loses_moves:
                    self.mailbox.send(sender, exchange_of(self.engine, message, self.cluster.scripted, self.memory_generation))
            case steps.Plan() if message.epoch == self._epoch:
                self.plans.append(message)
                try:
                    results = list(self.engine.collect(self.engine.launch(message)))
                except PlanRefused as error:
                    failed = steps.StepFailed(epoch=self._epoch, step=message.step, reason=str(error), suspects=error.suspects)
                    self.mailbox.send(sender, failed)
                    return
                for result in results:
                    if self._held is None:
                        self.mailbox.send(sender, result)
                    else:
                        self._held.append(result)


class CollectingGateway(ScriptedActor):
    """A gateway that collects tokens, endings and refusals by attempt. It acknowledges tokens while `acknowledges` is set."""

    def __init__(self, cluster: MemoryCluster, incarnation: int = 1, name: str = "gateway/0") -> None:
        super().__init__(cluster, name, incarnation)
        self.tokens: defaultdict[int, list[int]] = defaultdict(list)
        self.endings: dict[int, Ending] = {}
        self.refused: dict[int, Refused] = {}
        self.taken: set[int] = set()
        self.conditions: list[ReplicaCondition] = []  # of the scheduler's replica, as it has told them
        self.n_messages = 0
        self.acknowledges = True
        self.scheduler = "scheduler/0"  # that gets what is submitted

    def submit(self, attempt: int, tokens: list[int], max_tokens: int, **fields: Any) -> None:
        """Submit one sequence. It is greedy and without drafts unless `fields` (of Submit or of Terms) say otherwise."""
        names = ("n_prompt", "sampling", "x_request_id", "holder", "is_again")
        submit = {name: fields.pop(name) for name in names if name in fields}
        submit = {"n_prompt": len(tokens), "sampling": Sampling(temperature=0.0)} | submit
        terms = Terms(**{"max_tokens": max_tokens, "speculation": False} | fields)
        message = Submit(attempt=attempt, request=f"r{attempt}", tokens=int32s(tokens), terms=terms, **submit)
        self.mailbox.send(self.scheduler, message)

    def handle(self, sender: str, message: object) -> None:
        match message:
            case Taken():
                self.taken.add(message.attempt)
            case Refused():
                assert message.attempt not in self.refused
                assert message.attempt not in self.endings
                self.refused[message.attempt] = message
            case ReplicaState():
                self.conditions.append(message.condition)
            case Tokens():
                self.n_messages += 1
                self._collect(message)
                if self.acknowledges:
                    self.mailbox.send(sender, Ack(up_to=message.number))

    def _collect(self, message: Tokens) -> None:
        at, ids = 0, message.ids.tolist()
        rows = zip(message.attempts.tolist(), message.firsts.tolist(), message.counts.tolist(), strict=True)
        for attempt, first, count in rows:
            assert attempt not in self.endings, "tokens after the ending"
            self.first_index.setdefault(attempt, first)
            assert first == self.first_index[attempt] + len(self.tokens[attempt]), "a gap or a repeat"
            self.tokens[attempt] += ids[at : at + count]
            at += count
        for ending in message.endings:
            assert ending.attempt not in self.endings, "ended twice"
            self.endings[ending.attempt] = ending

    @property
    def first_index(self) -> dict[int, int]:
        """Index of the first generated token of each attempt that was delivered."""
        return self.__dict__.setdefault("_first_index", {})


class _Supervisor(ScriptedActor):
    def handle(self, sender: str, message: object) -> None:
        match message:
            case lifecycle.Hello():
                peer = lifecycle.Peer(name=sender, incarnation=self.cluster.incarnation_of[sender], endpoint=message.endpoint)
                self.mailbox.connect(sender, peer.incarnation, peer.endpoint)
                self.mailbox.send(sender, lifecycle.Welcome(peers=list(self.cluster.up.values())))
            case lifecycle.Ready():
                self.cluster.announce(sender)
            case lifecycle.Drained():
                self.cluster.drained.add(sender)
            case lifecycle.Fault():
                self.cluster.faults.append(message)


class MemoryCluster:
    """The actors, scripted members and mailboxes of one server; see the head of this file."""

    def __init__(self) -> None:
        self.network = MemoryNetwork()
        self.up: dict[str, lifecycle.Peer] = {}
        self.incarnation_of: dict[str, int] = {}
        self.scripted: dict[str, ScriptedActor] = {}
        self.actors: dict[str, tuple[Actor, asyncio.Task[int]]] = {}
        self.faults: list[lifecycle.Fault] = []
        self.drained: set[str] = set()  # names of actors that have sent Drained
        self._supervisor = _Supervisor(self, "supervisor/0", endpoint="memory://supervisor")

    def start(self, kind: type[ActorT], name: str, settings: object, incarnation: int = 1) -> ActorT:
        """Start a real actor and return it; it is not ready yet."""
        self.incarnation_of[name] = incarnation
        actor = kind(spawn_spec_of(name, settings, incarnation), lambda n, i, e: MemoryMailbox(self.network, n, i, e))
        self.actors[name] = (actor, asyncio.ensure_future(actor.run()))
        return actor

    def introduce(self, post: ScriptedActor) -> None:
        """Add a scripted member, which is ready at once."""
        self.scripted[post.name] = post
        self.incarnation_of[post.name] = post.incarnation
        self.announce(post.name, post.mailbox.endpoint)

    def announce(self, name: str, endpoint: str | None = None) -> None:
        """Send PeerUp for an actor to all real actors, and connect it with the scripted members."""
        incarnation = self.incarnation_of[name]
        peer = lifecycle.Peer(name=name, incarnation=incarnation, endpoint=endpoint or f"memory://{name}.{incarnation}")
        self.up[name] = peer
        for actor in self.actors:
            if actor != name and self._supervisor.mailbox.is_connected(actor):
                self._supervisor.mailbox.send(actor, lifecycle.PeerUp(peer=peer))
        for post in self.scripted.values():
            for other in self.up.values():
                post.mailbox.connect(other.name, other.incarnation, other.endpoint)

    async def kill(self, name: str, cause: lifecycle.Cause = "killed") -> None:
        """End a member without a message; the others receive PeerDown with this cause."""
        incarnation = self.up.pop(name).incarnation
        self._supervisor.mailbox.disconnect(name)
        if name in self.actors:
            actor, task = self.actors.pop(name)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await actor.mailbox.close()
        else:
            post = self.scripted.pop(name)
            post.task.cancel()
            await post.mailbox.close()
        for other in filter(self._supervisor.mailbox.is_connected, self.actors):
            self._supervisor.mailbox.send(other, lifecycle.PeerDown(name=name, incarnation=incarnation, cause=cause))
        for post in self.scripted.values():
            post.mailbox.disconnect(name)

    async def wait_until(self, condition) -> None:
        """Let all actors run until the condition holds.

        Raises: AssertionError after DEADLINE_S, or as soon as an actor has failed.
        """
        deadline = asyncio.get_running_loop().time() + DEADLINE_S
        while not condition():
            assert not self.faults, self.faults[0].traceback
            assert asyncio.get_running_loop().time() < deadline, "nothing happened within the deadline"
            await next_turn()

    async def settle(self, rounds: int = 200) -> None:
        """Let all actors run for a number of turns of the event loop."""
        for _ in range(rounds):
            await asyncio.sleep(0)
        assert not self.faults, self.faults[0].traceback

    async def close(self) -> None:
        """End all members."""
        for name in list(self.up):
            await self.kill(name)
        self._supervisor.task.cancel()
