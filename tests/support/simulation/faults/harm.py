"""Carries out the faults of a simulated run, at random times and at edges."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial

from messages.ids import SUPERVISOR, role_of
from tests.support.simulation.copies.faults import CopyFaults
from tests.support.simulation.edges import OF_DEVICES, OF_EXCHANGE, Fault, reachable_pairs
from tests.support.simulation.embedding import PAIRS as OF_EMBEDDINGS
from tests.support.simulation.faults.accounts import OF_ACCOUNTS
from tests.support.simulation.faults.accounts import PAIRS as OF_ALLOWANCES
from tests.support.simulation.faults.cordons import CordonCommands
from tests.support.simulation.faults.disk_tier import SimulatedDisk
from tests.support.simulation.faults.flipped_bits import flip_bit
from tests.support.simulation.faults.outages import Outages
from tests.support.simulation.faults.resets import Resets
from tests.support.simulation.processes import Machine, SimulatedProcess
from tests.support.simulation.scenario import FAULTS_S, Outage, Scenario
from tests.support.simulation.supervisors import SimulatedParent
from tests.support.simulation.threads import SimulatedWriter
from tests.support.simulation.virtual_loop import LifeState

_AIMS_PER_SEED = 2
_STRIDE = 101  # prime, so that the aims of one seed are far from each other in the table
_SUPERVISOR_SHARE = 0.2  # of the pauses
_LAG_S = 0.05  # between the first and the last process that continues after a pause of all
_DEADLY_SHARE = 0.8  # of flipped bits
_CLIENT_SHARE = 0.3  # of the cuts
_OF_ONE_ROLE = ("Hello", "Welcome", "Loading", "Ready")  # messages that a process sends or gets when it begins
_OF_DRAINS = ("Drain", "Drained")
_OF_BEGINNINGS = (*_OF_ONE_ROLE, "PeerUp", "PeerDown", "Reset", "Capacity", "ReplicaState", "spawns")


class Harm:
    """Carries out the faults of one scenario, at times drawn from `chance`."""

    def __init__(
        self, seed: int, scenario: Scenario, machine: Machine, parent: SimulatedParent, harmed: set[str], disk: SimulatedDisk
    ) -> None:
        """`harmed`: the roles to which something was done are added to it. disk: below the disk tier."""
        self._disk = disk
        self._seed, self._harmed, self._scenario, self._machine, self._parent = seed, harmed, scenario, machine, parent
        self._loop, self._chance, self._network = machine.loop, machine.chance, machine.network
        self._outages, self._resets = Outages(machine, parent), Resets(machine)
        self._cordons = CordonCommands(machine, parent)
        self.n_deaths = self.n_flips = self._n_aims = 0
        self.clock_ahead_s = 0.0  # of the wall clock
        self.cut_client: Callable[[], None] = lambda: None
        self.copies = CopyFaults(seed, machine.edges)

    async def run(self) -> None:
        s = self._scenario
        if s.sought is not None:
            self._seek(*s.sought)
        elif s.n_exchange_places and s.is_harmful:
            self._machine.edges.aim(*random.Random(f"exchange aims {self._seed}").choice(OF_EXCHANGE))
        kinds = (
            [self._kill] * s.n_deaths
            + [self._pause] * s.n_pauses
            + [self._fill_disk] * s.n_disk_failures
            + [self._hang_disk] * s.n_disk_hangs
            + [self._cut] * s.n_cuts
            + [self._jump] * s.n_clock_jumps
            + [self._kill_supervisor] * s.n_supervisor_deaths
            + [self._aim] * s.n_aims
            + [self._harm_device] * s.n_device_faults
            + [self._harm_embedder] * s.n_embedder_aims
            + [self._harm_accounts] * s.n_account_aims
            + [self._roll] * s.n_rolls
            + [self._parent.die] * s.n_parent_deaths
            + [self._flip] * s.n_flips
            + [self._pause_all] * s.n_common_pauses
            + [self._resets.begin] * s.n_resets
            + [self._cordons.begin] * s.n_cordons
            + [self._harm_pages] * s.n_disk_tier_harms
            + [partial(self._outages.begin, outage) for outage in s.outages]
        )
        self._chance.shuffle(kinds)
        self._disk.probability, self.copies.probability = s.disk_tier_faults, s.copy_faults
        for kind in kinds:
            await asyncio.sleep(self._chance.uniform(0.0, 2 * FAULTS_S / max(len(kinds), 1)))
            kind()
        await self._outages.wait()
        await asyncio.sleep(2 * FAULTS_S if s.copy_faults else 0.0)  # others may have come to their end long before
        await asyncio.sleep(s.longest_pause_s if s.n_pauses or s.n_common_pauses else 0.0)
        SimulatedWriter.refuses = False
        self._disk.probability = self.copies.probability = 0.0

    def _victim(self) -> SimulatedProcess | None:
        living = [process for process in self._machine.processes if process.is_alive]
        return self._chance.choice(living) if living else None

    def _kill(self) -> None:
        """Kill a process now, or at one of its next callbacks."""
        victim = self._victim()
        if victim is None:
            return
        self.n_deaths += 1
        self._harmed.add(role_of(victim.name))
        if self._chance.random() < 0.5:
            victim.die(-9)
        else:
            victim.life.dies_at = victim.life.n_callbacks + self._chance.randrange(1, 300)

    def _aim(self) -> None:
        """Aim a fault at an edge. All pairs get their turn, one seed after the other."""
        self._n_aims += 1
        scenario = self._scenario
        is_sized, has_sized_tier = scenario.n_least_pages > 0, scenario.n_least_places > 0
        features = (scenario.n_host_places > 0, is_sized, has_sized_tier, scenario.n_disk_places > 0)
        pairs = reachable_pairs(*features, scenario.copies_beside)
        number = (self._seed * _AIMS_PER_SEED + self._n_aims) * _STRIDE % len(pairs)
        self._machine.edges.aim(*pairs[number])

    def _seek(self, edge: str, fault: Fault) -> None:
        """Aim at this edge, and kill a process whose next life reaches it, if it is one of those at a beginning or a death."""
        self._machine.edges.aim(edge, fault, nth=0)
        role, _, kind = edge.partition(" ")
        kind = kind.rpartition(" ")[2]
        if kind == "Adopt":
            self._kill_supervisor()
        elif kind == "RankEnding":
            self._kill_one_of("worker")
        elif kind in _OF_DRAINS:
            self._outages.begin(Outage.DRAIN)
        elif kind in _OF_BEGINNINGS:
            self._kill_one_of(role if kind in _OF_ONE_ROLE and role != role_of(SUPERVISOR) else "")

    def _kill_one_of(self, role: str) -> None:
        """Kill a process that serves; `role` "": any."""
        living = [
            p for p in self._machine.processes if p.is_alive and p.spawn_spec is not None and role in ("", role_of(p.name))
        ]
        if living:
            victim = self._chance.choice(living)
            self.n_deaths += 1
            self._harmed.add(role_of(victim.name))
            victim.die(-9)

    def _harm_device(self) -> None:
        self._machine.edges.aim("worker begins a step", self._chance.choice(OF_DEVICES))

    def _harm_embedder(self) -> None:
        self._machine.edges.aim(*self._chance.choice(OF_EMBEDDINGS))

    def _harm_accounts(self) -> None:
        self._machine.edges.aim(*self._chance.choice(OF_ALLOWANCES if self._scenario.n_deaths else OF_ACCOUNTS))

    def _kill_supervisor(self) -> None:
        """Kill the supervisor now, or at one of its next callbacks."""
        life = self._parent.life
        if self._chance.random() < 0.5:
            self._parent.kill()
        else:
            life.dies_at = life.n_callbacks + self._chance.randrange(1, 300)

    def _roll(self) -> None:
        """Replace every process. A connection whose gateway dies meanwhile may have no custodian."""
        if self._scenario.is_harmful:
            self._harmed.add("custodian")
        self._parent.roll()

    def _pause(self) -> None:
        """Pause a process, now and then the supervisor."""
        for_s = self._chance.uniform(0.01, self._scenario.longest_pause_s)
        if self._chance.random() < _SUPERVISOR_SHARE:
            if self._parent.life.state is LifeState.RUNNING:
                self._parent.life.state = LifeState.PAUSED
                self._loop.call_later(for_s, self._loop.resume, self._parent.life)
            return
        victim = self._victim()
        if victim is not None:
            self._harmed.add(role_of(victim.name))
            victim.pause()
            self._loop.call_later(for_s, victim.resume)

    def _pause_all(self) -> None:
        """Pause every process, as a machine that sleeps does. They continue within a moment."""
        for_s = self._chance.uniform(1.0, self._scenario.longest_pause_s)
        for life in [self._parent.life, *(process.life for process in self._machine.processes)]:
            if life.state is LifeState.RUNNING:
                self._harmed.add(role_of(life.name))
                life.state = LifeState.PAUSED
                self._loop.call_later(for_s + self._chance.uniform(0.0, _LAG_S), self._loop.resume, life)

    def _flip(self) -> None:
        """Flip a bit in a gateway's journal, most often just before the gateway dies and reads it."""
        gateways = [
            p for p in self._machine.processes if p.is_alive and p.spawn_spec is not None and role_of(p.name) == "gateway"
        ]
        if not gateways:
            return
        victim = self._chance.choice(gateways)
        if flip_bit(self._parent.journal_of(victim.name), self._chance):
            self.n_flips += 1
            self._harmed.add("gateway")
            if self._chance.random() < _DEADLY_SHARE:
                self.n_deaths += 1
                victim.die(-9)

    def _fill_disk(self) -> None:
        SimulatedWriter.refuses = True
        self._loop.call_later(self._chance.uniform(0.01, 2.0), _free_disk)

    def _hang_disk(self) -> None:
        SimulatedWriter.hangs = True
        self._loop.call_later(self._chance.uniform(0.01, 4.0), _let_disk_go_on)

    def _harm_pages(self) -> None:
        self._disk.harm_file(self._parent.pages_dir)

    def _jump(self) -> None:
        self.clock_ahead_s += self._chance.choice((-7200.0, -3600.0, 3600.0, 86_400.0))

    def _cut(self) -> None:
        """Break a link between two actors, or a client's connection."""
        if self._chance.random() < _CLIENT_SHARE:
            self.cut_client()
            return
        endpoints = self._network.endpoints[-12:]
        source, target = self._chance.sample(endpoints, 2)
        self._network.cut(source, target, self._chance.uniform(0.01, 1.0))


def _let_disk_go_on() -> None:
    SimulatedWriter.hangs = False


def _free_disk() -> None:
    SimulatedWriter.refuses = False
