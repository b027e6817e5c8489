"""What becomes of the new tokens of a step: gateways are told, complete sequences end, and speculation hears of the others."""

from __future__ import annotations

import time
from collections.abc import Mapping

from actors.scheduler.endings import Endings
from actors.scheduler.hints import Hints
from actors.scheduler.metrics import SchedulerMetrics
from actors.scheduler.outgoing import Outgoing
from actors.scheduler.plan_timer import PlanTimer
from actors.scheduler.planning.rows.advance import Advance, Advances, BatchAdvance
from messages.steps import Result


class NewTokens:
    """The new tokens of one scheduler's sequences. `outgoing` has the next message to each gateway."""

    def __init__(
        self,
        outgoing: Mapping[str, Outgoing],
        endings: Endings,
        hints: Hints,
        timer: PlanTimer,
        metrics: SchedulerMetrics,
    ) -> None:
        self._outgoing, self._endings, self._hints, self._timer, self._metrics = outgoing, endings, hints, timer, metrics

    def told(self, advances: Advances, result: Result, is_drafting: bool) -> None:
        """One step is done: its sequences have these tokens of `result`. is_drafting: speculation hears of them."""
        self._metrics.count_generated(advances.n_tokens)
        together = advances.together
        if together is None or result.logprobs is not None or (is_drafting and together.rows.batch.wants_drafts):
            for advance in advances:
                self._advance(advance, result, is_drafting)
            return
        self._advance_together(together)
        for advance in advances.others:
            self._advance(advance, result, is_drafting)

    def _advance_together(self, together: BatchAdvance) -> None:
        for gateway, places in together.rows.batch.places_of.items():
            self._outgoing[gateway].add_batch(together, places)
        for advance in together.ended():
            self._end(advance)

    def _advance(self, advance: Advance, result: Result, is_drafting: bool) -> None:
        sequence = advance.row.sequence
        if advance.ending == "failed":
            return self._endings.end(sequence, "failed", f"grammar: {advance.detail}", "grammar_too_complex")
        self._outgoing[sequence.gateway].add(advance, result)
        if advance.rest_s or sequence.grammar_state.is_slow:
            sequence.grammar_state.rest(time.monotonic(), advance.rest_s)
            self._timer.after_rest(advance.rest_s)
        if not sequence.timeline.first_token_s:
            sequence.timeline.first_token_s = time.monotonic()
        if advance.row.drafts:
            sequence.timeline.verified(len(advance.row.drafts), advance.n_accepted)
            self._metrics.count_drafts(len(advance.row.drafts), advance.n_accepted)
        if advance.ending is not None:
            self._end(advance)
        elif is_drafting and sequence.terms.speculation:
            self._hints.advanced(advance)

    def _end(self, advance: Advance) -> None:
        if advance.ending == "length":
            self._endings.end_at_limit(advance.row.sequence)
        elif advance.ending is not None:
            self._endings.end(advance.row.sequence, advance.ending)
