"""What follows when a sequence is found to kill workers or schedulers: its prompt is refused, and equal sequences end."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from actors.gateway.dispatch.dispatcher import Dispatcher
from actors.gateway.dispatch.post import Post
from actors.gateway.requests.order import Ended
from actors.gateway.requests.quarantine import Quarantine, is_same_computation
from actors.gateway.requests.request import GrowingSequence


class Verdicts:
    """Carries out the verdicts on sequences of one gateway. `end` ends a sequence."""

    def __init__(
        self, quarantine: Quarantine, dispatcher: Dispatcher, post: Post, end: Callable[[GrowingSequence, Ended], None]
    ) -> None:
        self._quarantine, self._dispatcher, self._post, self._end = quarantine, dispatcher, post, end
        self._log = structlog.get_logger()

    def condemned(self, sequence: GrowingSequence, detail: str) -> None:
        """A sequence faults schedulers: end it."""
        self._log.error("sequence condemned", detail=detail, **sequence.request.order.log_fields)
        self._end(sequence, Ended(reason="quarantined", code="quarantined", detail=detail))
        self.quarantined(sequence, detail)

    def quarantined(self, sequence: GrowingSequence, detail: str) -> None:
        """A sequence has ended as quarantined. Refuse its prompt from now on, and end running ones that compute the same."""
        order, n_given = sequence.request.order, len(sequence.ids)
        self._quarantine.add(order, sequence.index, n_given, self._post.now_s())
        ended = Ended(reason="quarantined", code="quarantined", detail=f"of an equal sequence: {detail}")
        self._dispatcher.end_all(lambda other: is_same_computation(sequence, other), ended, "quarantined")
