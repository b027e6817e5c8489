"""Speculation: keeps the tokens of the sequences that want drafts, and answers each report of new tokens with drafts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from prometheus_client import Counter

from actors.actor import Actor, Handler
from actors.speculation.draft_length import DraftLength
from actors.speculation.ngram_proposer import NgramProposer
from actors.speculation.settings import SpeculationSettings
from messages import drafts
from messages.errors import MailboxFull
from messages.ids import role_of
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.transport.mailbox import Delivery, MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.arrays import int32s, int64s
from messages.wire.message import Message


@dataclass(frozen=True)
class _History:
    """What is kept of one sequence."""

    proposer: NgramProposer
    length: DraftLength


class SpeculationActor(Actor):
    """The actor around one `NgramProposer` and one `DraftLength` for each sequence."""

    def __init__(self, spawn_spec: SpawnSpec, make_mailbox: MailboxFactory = ZmqMailbox) -> None:
        super().__init__(spawn_spec, make_mailbox)
        self._settings = msgspec.json.decode(spawn_spec.settings, type=SpeculationSettings)
        self._histories: OrderedDict[tuple[str, int], _History] = OrderedDict()  # by (scheduler, sequence), oldest first
        self._n_proposals = 0
        self._proposed = Counter("tardigrade_speculation_proposed_tokens", "Draft tokens proposed", registry=self.registry)
        self._accepted = Counter("tardigrade_speculation_accepted_tokens", "Draft tokens accepted", registry=self.registry)

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {drafts.Tails: self.on_tails}

    def on_tails(self, delivery: Delivery, tails: drafts.Tails) -> None:
        """Add the new tokens to their sequences and propose what may follow."""
        offset, ids = 0, tails.ids.tolist()
        proposals: list[tuple[int, int, list[int]]] = []
        columns = (tails.sequences, tails.starts, tails.counts, tails.accepted)
        for number, start, count, accepted in zip(*(column.tolist() for column in columns), strict=True):
            key = (delivery.sender, number)
            if count < 0:
                self._histories.pop(key, None)
                continue
            tokens = ids[offset : offset + count]
            offset += count
            draft = self._extend(key, start, tokens, accepted)
            if draft:
                proposals.append((number, start + count, draft))
        self._answer(delivery.sender, proposals)

    def peer_down(self, name: str, incarnation: int) -> None:
        if role_of(name) == "scheduler":
            for key in [key for key in self._histories if key[0] == name]:
                del self._histories[key]

    def progress(self) -> tuple[int, float]:
        return self._n_proposals, 0.0

    def statistics(self) -> dict[str, float]:
        return {"sequences": float(len(self._histories)), "proposals": float(self._n_proposals)}

    def _extend(self, key: tuple[str, int], start: int, tokens: list[int], accepted: int) -> list[int]:
        """Add the tokens from position `start` on to a sequence. Returns the draft for the positions after them, or []."""
        settings = self._settings
        history = self._histories.get(key)
        if start == 0:
            history = _History(
                NgramProposer(settings.longest_match, settings.shortest_match), DraftLength(settings.longest_match)
            )
            self._histories[key] = history
            if len(self._histories) > settings.max_sequences:
                self._histories.popitem(last=False)
        if history is None or len(history.proposer) != start:
            return []  # this process does not have its first tokens, so the sequence gets no drafts
        # a prompt may repeat nothing and yet be repeated by the answer, so it teaches nothing
        history.proposer.extend(tokens, history.length.note if start else None)
        self._accepted.inc(accepted)
        return history.proposer.propose(history.length.wanted(history.proposer.n_matched, settings.max_draft))

    def _answer(self, scheduler: str, proposals: list[tuple[int, int, list[int]]]) -> None:
        if not proposals or scheduler not in self.child.peers:
            return
        answer = drafts.Drafts(
            sequences=int64s([number for number, _, _ in proposals]),
            starts=int32s([start for _, start, _ in proposals]),
            counts=int32s([len(draft) for _, _, draft in proposals]),
            ids=int32s([token for _, _, draft in proposals for token in draft]),
        )
        try:
            self.send(scheduler, answer)
        except MailboxFull:
            return
        self._n_proposals += len(proposals)
        self._proposed.inc(len(answer.ids))


async def run(spawn_spec: SpawnSpec) -> int:
    """Run one incarnation of speculation; returns the exit status."""
    return await SpeculationActor(spawn_spec).run()
