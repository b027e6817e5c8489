"""Starts one new incarnation of a child, or of all children of a gang: processes, number, rendezvous, spawn spec. No policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
import structlog

from messages.ids import replica_of, seat_of
from messages.lifecycle.spawn_spec import SpawnSpec
from supervisor.children.child_record import ChildRecord
from supervisor.children.process import ChildProcess
from supervisor.children.spares import Spares
from supervisor.children.spawner import Spawner, ignore_exit
from supervisor.directories.rendezvous import Incarnations, open_gang_dir
from supervisor.directories.run_dir import RunDir


class Starter:
    """Makes processes into incarnations of children. A spare is used where there is one.

    `template`: what all spawn specs of this server have in common. `watch(record, process)` is called as soon as a process is
    registered as an incarnation, and before that incarnation begins.
    """

    def __init__(
        self,
        template: SpawnSpec,
        run_dir: RunDir,
        incarnations: Incarnations,
        spawner: Spawner,
        spares: Spares,
        watch: Callable[[ChildRecord, ChildProcess], None],
    ) -> None:
        self._template, self._run_dir, self._incarnations = template, run_dir, incarnations
        self._spawner, self._spares, self._watch = spawner, spares, watch
        self._log = structlog.get_logger()

    def start(self, records: Sequence[ChildRecord], has_rendezvous: bool) -> None:
        """Start one incarnation of each of these children, all with the same number. `has_rendezvous`: they get a directory in
        which they find each other.

        Raises: OSError when the machine refuses; then none of them was started.
        """
        for record in records:
            assert not record.is_alive, f"{record.name}: expected a proven death before a new incarnation"
        names = [record.name for record in records]
        gang_dir = ""
        waiting: list[tuple[ChildProcess, bool]] = []
        try:
            for record in records:
                spare = self._spares.pop(record.name, only_warm=self._spawner.can_fork(record.spec))
                waiting.append((spare or self._spawner.spawn(record.spec, ignore_exit), spare is not None))
            incarnation = self._incarnations.next(*names)
            if has_rendezvous:
                gang_dir = open_gang_dir(self._run_dir.path, replica_of(names[0]), seat_of(names[0]), incarnation)
        except OSError:
            for name, (process, _) in zip(names, waiting, strict=False):
                self._spares.keep(name, process)
            raise
        for record, (process, is_warm) in zip(records, waiting, strict=True):
            self._begin(record, process, incarnation, gang_dir)
            self._log.info("child started", child=record.name, incarnation=incarnation, pid=process.pid, is_warm=is_warm)

    def _begin(self, record: ChildRecord, process: ChildProcess, incarnation: int, gang_dir: str) -> None:
        spec = record.spec
        spawn_spec = msgspec.structs.replace(
            self._template,
            supervisor_pid=self._spawner.supervisor_pid,
            name=spec.name,
            incarnation=incarnation,
            endpoint=self._run_dir.endpoint(spec.name, incarnation),
            settings=msgspec.Raw(spec.settings),
            descriptors=dict(spec.descriptors if process.descriptors is None else process.descriptors),
            gang_dir=gang_dir,
        )
        record.begin_incarnation(incarnation, process, gang_dir, time.monotonic())
        self._spawner.note(process, record.facts)  # before its spawn spec: no incarnation runs that is not registered
        self._watch(record, process)
        process.send_spawn_spec(msgspec.json.encode(spawn_spec))
