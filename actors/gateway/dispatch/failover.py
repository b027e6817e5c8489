"""Moves sequences off replicas that cannot compute, while another one can.

    a gang dies ----ReplicaState(down)----> `failover_s` of grace -------> its sequences move       (a standby that has
         |                                  none if no standby is ready                              taken over by then
         |                                                                                           keeps them)
         |                                  a suspect was alone: it moves at once, because only a second device tells
         |                                  whether the first one or the sequence is to blame
         +--- it dies of the canary: ReplicaState(sick) -----------------> its sequences move at once

A move closes the attempt and opens another one with prompt and output, as after the death of a scheduler, so the stream goes on
at the next token. The suspicion of a sequence goes with it. Without another replica that is up, sequences wait where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from actors.gateway.dispatch.post import Post
from actors.gateway.dispatch.replicas import Replicas, of_model
from actors.gateway.dispatch.routing import AttemptBook
from actors.gateway.requests.request import GrowingSequence
from messages.generation.replica_state import ReplicaCondition, ReplicaState
from messages.ids import model_of
from messages.log_file.request_names import names_of


class Failover:
    """`move` closes the attempt of a sequence and submits it again."""

    def __init__(self, grace_s: float, post: Post, book: AttemptBook, move: Callable[[GrowingSequence], None]) -> None:
        self._grace_s, self._post, self._book, self._move = grace_s, post, book, move
        self._log = structlog.get_logger()
        self.replicas = Replicas()
        self.on_suspicion: Callable[[GrowingSequence], None] = lambda sequence: None  # called when it changes
        self.on_sick: Callable[[str], None] = lambda name: None  # called with the name of a scheduler whose replica is sick
        self.on_condition: Callable[[str, ReplicaCondition], None] = lambda name, condition: None  # called before moves
        self.n_moved = 0  # sequences
        self._living: list[str] = []  # of these schedulers and this version of `replicas` the candidates are known, by model
        self._version = -1
        self._candidates: dict[int, list[str]] = {}

    def on_state(self, name: str, state: ReplicaState) -> None:
        """A scheduler has reported the condition of its replica and the attempts that are suspect there."""
        suspicion_of = {suspect.attempt: suspect.suspicion for suspect in state.suspects}
        for sequence in self._book.at(name):
            if not sequence.is_taken:  # the scheduler did not know it yet when it said this
                continue
            before, suspicion = sequence.suspicion, suspicion_of.get(sequence.attempt)
            sequence.suspicion = suspicion
            if suspicion is None:
                sequence.replicas_harmed = frozenset()
            elif suspicion.certain:
                sequence.replicas_harmed |= {name}
            if suspicion != before:
                self.on_suspicion(sequence)
        if state.condition is ReplicaCondition.SICK:
            self.on_sick(name)
        self.on_condition(name, state.condition)
        number = self.replicas.note(name, state.condition)
        if state.condition is ReplicaCondition.DOWN:
            if number and state.has_successor:
                self._post.later(self._grace_s, partial(self._leave_if_lasting, name, number))
            elif number:
                self._leave_if_lasting(name, number)
            self._part_suspects(name)
        else:
            self._leave()

    def candidates(self, model: int = 0) -> list[str]:
        """The schedulers of the replicas of this model that are in the best condition. The list is not to be changed; while
        nothing changes it is the same one, because each request asks three times."""
        living = self._post.living("scheduler")
        if living is not self._living or self._version != self.replicas.version:
            self._living, self._version, self._candidates = living, self.replicas.version, {}
        found = self._candidates.get(model)
        if found is None:
            found = self._candidates[model] = self.replicas.candidates(of_model(living, model))
        return found

    def _leave_if_lasting(self, name: str, number: int) -> None:
        if self.replicas.end_grace(name, number):
            self._leave()

    def _leave(self) -> None:
        """Move all sequences off replicas that are out for long enough."""
        for name in self.replicas.to_leave(self._post.living("scheduler")):
            self._move_all(name, self._book.at(name))

    def leave_now(self, name: str) -> None:
        """Move all sequences off a replica, also those that run."""
        self._move_all(name, self._book.at(name))

    def _part_suspects(self, name: str) -> None:
        """Move each sequence that was computed alone when its gang died."""
        others = [other for other in of_model(self._post.living("scheduler"), model_of(name)) if other != name]
        if any(self.replicas.is_usable(other) for other in others):
            self._move_all(name, [s for s in self._book.at(name) if s.suspicion is not None and s.suspicion.certain])

    def _move_all(self, name: str, sequences: list[GrowingSequence]) -> None:
        if sequences:
            condition = self.replicas.condition(name)
            self._log.warning("sequences go to other replicas", away_from=name, condition=condition, sequences=len(sequences))
        self.note_again(name, sequences)
        self.n_moved += len(sequences)
        for sequence in sequences:
            self._move(sequence)

    def note_again(self, name: str, sequences: list[GrowingSequence]) -> None:
        """Write into the log which requests leave this scheduler, or its death, to be submitted again."""
        if sequences:
            requests = names_of(one.spec.request for one in sequences)
            self._log.info("requests are submitted again", away_from=name, requests=requests)
