"""Rebuilds a request from its record in the journal."""

from __future__ import annotations

from actors.gateway.journal.records import Recovered, replay_row
from actors.gateway.requests.request import KEY_BITS, Gap, Request
from actors.gateway.text.tokenizer import TextModel


def restore(recovered: Recovered, model: TextModel, now_s: float) -> Request:
    """Returns the request with all its recorded tokens and endings, all of them visible. `now_s`: the monotonic clock.

    Raises: ValueError when the record contradicts itself, because the journal is damaged.
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
    if recovered.ended_s is not None:  # so that its latency is what the journal has recorded
        request.began_s, request.ended_s = now_s - max(recovered.ended_s - recovered.order.created_s, 0.0), now_s
    request.is_recorded = True
    request.n_checkpointed = request.n_generated
    return request
