"""From the journal's words back to a living request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from actors.gateway.journal.records import Recovered, replay_row
from actors.gateway.requests.request import KEY_BITS, Gap, Request
from actors.gateway.text.tokenizer import TextModel

if TYPE_CHECKING:
    from actors.gateway.dispatch.request_desk import RequestDesk


def restore(recovered: Recovered, model: TextModel, now_s: float) -> Request:
    """A request with all its recorded tokens and endings, every one of them visible.

    Raises: ValueError when the record contradicts itself (a damaged journal).
    """
    request = Request(recovered.number, recovered.order, model.detokenizer, now_s)
    sequences = request.sequences
    rows = [state.row for state in recovered.states] + recovered.steps
    endings = {state.row.key: state.ended for state in recovered.states if state.ended is not None} | recovered.endings
    for row in rows:
        index = row.key & ((1 << KEY_BITS) - 1)
        if index >= len(sequences):
            raise ValueError(f"key: expected a sequence below {len(sequences)}, got {index}")
        try:
            replay_row(sequences[index], row)
        except Gap as gap:
            raise ValueError(f"journal: {gap}") from None
    for sequence in sequences:
        ended = endings.get(sequence.key)
        if ended is not None:
            sequence.end(ended)
        sequence.publish(len(sequence.ids), sequence.ended is not None)
        request.n_open -= sequence.is_end_visible
    if recovered.ended_s is not None:  # what it took, as far as the journal knows
        request.began_s, request.ended_s = now_s - max(recovered.ended_s - recovered.order.created_s, 0.0), now_s
    request.is_recorded = True
    request.n_checkpointed = request.n_generated
    return request


def take_over_all(desk: RequestDesk, recovered: list[Recovered], model: TextModel, now_s: float) -> int:
    """Give a new gateway what its predecessor had promised; returns how many requests go on.

    Requests whose client can come back are brought to schedulers again; the connections of all others died with the
    predecessor, so they end as cancelled.
    """
    log, resumed = structlog.get_logger(), 0
    for entry in recovered:
        try:
            request = restore(entry, model, now_s)
        except (ValueError, IndexError) as error:
            log.error("journal: request left out", number=entry.number, error=str(error))
            desk.drop(entry.number)
            continue
        if request.is_over:
            desk.settle(request, entry.ended_s)
        elif desk.take_over(request):
            resumed += 1
    return resumed
