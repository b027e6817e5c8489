"""The next message to one gateway: tokens and endings of all of its sequences. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np

from actors.scheduler.planning.rows.advance import Advance, BatchAdvance
from actors.scheduler.sequences.sequence import Sequence
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs, place_logprobs
from messages.generation.sequences import Ending, Holding, Tokens
from messages.steps import Result
from messages.wire.arrays import EMPTY_I32, EMPTY_I64, int32s, int64s


class _TokenRows(NamedTuple):
    """Rows of `Tokens`, as its arrays."""

    attempts: np.ndarray
    firsts: np.ndarray
    counts: np.ndarray
    cached: np.ndarray
    ids: np.ndarray


class Outgoing:
    """Collects tokens and endings until `take`. `number` and `acknowledged` count the messages sent and acknowledged."""

    def __init__(self) -> None:
        self.number = 0
        self.acknowledged = 0
        self.newest_attempt = 0  # the highest one that the gateway has submitted
        self._rows: list[tuple[Sequence, int, list[int]]] = []  # (sequence, index of the first token, ids)
        self._before: list[_TokenRows] = []  # the rows before them
        self._endings: list[Ending] = []
        self._logprobs: list[tuple[int, TokenLogprobs]] = []  # (index of a row, log probabilities of its ids)
        self._prompts: list[PromptLogprobs] = []

    @property
    def unacknowledged(self) -> int:
        """Messages that the gateway has not acknowledged yet."""
        return self.number - self.acknowledged

    def note_attempt(self, attempt: int) -> None:
        """The gateway has submitted this attempt."""
        self.newest_attempt = max(self.newest_attempt, attempt)

    def acknowledge(self, up_to: int) -> None:
        """The gateway has recorded the messages up to this number."""
        self.acknowledged = max(self.acknowledged, min(up_to, self.number))

    def holding(self, sequences: list[Sequence], n_steps: int, now_s: float) -> Holding:
        """The inventory for the gateway, of all of its sequences, with the number of steps that are done and the time by the
        monotonic clock. To be sent while nothing is collected.
        """
        return Holding(
            number=self.number,
            newest=self.newest_attempt,
            attempts=int64s([sequence.attempt for sequence in sequences]),
            told=int32s([sequence.n_sent for sequence in sequences]),
            steps=n_steps,
            made_s=now_s,
        )

    def add(self, advance: Advance, result: Result) -> None:
        """Add tokens of one sequence. If its gateway wants them in groups, they stay in the sequence until a group is full."""
        sequence = advance.row.sequence
        if sequence.terms.group_tokens == 1:
            sequence.n_sent = advance.first + len(advance.ids)
            if result.logprobs is not None:
                part = result.logprobs.part(advance.offset, advance.offset + len(advance.ids))
                self._logprobs.append((sum(len(rows.attempts) for rows in self._before) + len(self._rows), part))
            self._rows.append((sequence, advance.first, advance.ids))
        elif sequence.is_due:
            self._rows.append((sequence, *sequence.take_unsent()))

    def add_batch(self, together: BatchAdvance, places: np.ndarray | slice) -> None:
        """Add the tokens of the sequences at these places of a batch, which have no log probabilities and no groups."""
        batch, ids = together.rows.batch, together.ids[places]
        self._fold_rows()
        rows = (batch.attempts[places], together.firsts[places], np.ones(len(ids), np.int32), batch.cached[places], ids)
        self._before.append(_TokenRows(*rows))
        for sequence in batch.sequences if isinstance(places, slice) else [batch.sequences[at] for at in places.tolist()]:
            sequence.n_sent += 1

    def add_prompt(self, part: PromptLogprobs) -> None:
        """Add log probabilities of a sequence's prompt."""
        self._prompts.append(part)

    def end(self, sequence: Sequence, ending: Ending) -> None:
        """Add the one ending of an attempt, after all of its tokens."""
        if sequence.n_sent < sequence.n_generated:
            self._rows.append((sequence, *sequence.take_unsent()))
        self._endings.append(ending)

    def take(self) -> Tokens | None:
        """The next message, or None when there is nothing to send."""
        if not self._rows and not self._before and not self._endings and not self._prompts:
            return None
        self.number += 1
        self._fold_rows()
        rows = _joined(self._before)
        message = Tokens(
            number=self.number,
            attempts=rows.attempts,
            firsts=rows.firsts,
            counts=rows.counts,
            cached=rows.cached,
            ids=rows.ids,
            endings=self._endings,
            logprobs=self._gather_logprobs(rows.counts),
            prompts=self._prompts,
        )
        self._before, self._endings, self._logprobs, self._prompts = [], [], [], []
        return message

    def _fold_rows(self) -> None:
        """Make arrays of the rows that were added one by one."""
        if not self._rows:
            return
        sequences, firsts, ids = zip(*self._rows, strict=True)
        cached = [s.n_cached if s.n_cached < s.n_prompt else s.n_prompt for s in sequences]  # `min`, without a call for each
        attempts, counts = int64s([s.attempt for s in sequences]), int32s(map(len, ids))
        rows = _TokenRows(attempts, int32s(firsts), counts, int32s(cached), int32s(chain.from_iterable(ids)))
        self._before.append(rows)
        self._rows = []

    def _gather_logprobs(self, counts: np.ndarray) -> TokenLogprobs | None:
        """The log probabilities of the ids of all rows, which have so many; None if no row has any."""
        if not self._logprobs:
            return None
        starts = np.cumsum([0, *counts.tolist()]).tolist()
        return place_logprobs(starts[-1], [(starts[index], part) for index, part in self._logprobs])


def _joined(parts: list[_TokenRows]) -> _TokenRows:
    """All rows, in order."""
    if len(parts) <= 1:
        return parts[0] if parts else _TokenRows(EMPTY_I64, *(EMPTY_I32,) * 4)
    return _TokenRows(*map(np.concatenate, zip(*parts, strict=True)))


def add_prompts(outgoing: Mapping[str, Outgoing], prompts: Iterable[tuple[Sequence, PromptLogprobs]]) -> None:
    """Add log probabilities of prompts to the next message to the gateway of each sequence."""
    for sequence, part in prompts:
        outgoing[sequence.gateway].add_prompt(part)


def send_taken(outgoing: Mapping[str, Outgoing], peers: Container[str], send: Callable[[str, Tokens], None]) -> None:
    """Send each gateway what was collected for it; drop that of gateways that are not among the peers."""
    for gateway, one in outgoing.items():
        if (message := one.take()) is not None and gateway in peers:
            send(gateway, message)


def without_credit(outgoing: Mapping[str, Outgoing], most_unacknowledged: int) -> set[str]:
    """The gateways that have not acknowledged so many messages that their sequences must wait."""
    return {gateway for gateway, one in outgoing.items() if one.unacknowledged >= most_unacknowledged}
