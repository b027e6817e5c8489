"""Rebuilds a request from its record in the journal."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from actors.gateway.journal.records import (
    Recovered,
    RequestRecord,
    StepRow,
    SuspectRecord,
    decode_spec,
    decode_states,
    decode_suspect,
    is_plain,
    replay_row,
)
from actors.gateway.models.served_models import ServedModels
from actors.gateway.requests.request import Gap, Request
from actors.gateway.requests.request_spec import model_changed
from actors.gateway.requests.stream_items import END_ITEM, KEY_BITS, PING_ITEM, RUN_ITEM, SUSPICION_ROW
from actors.gateway.text.models.text_model import TextModel, detokenizers

_INDEX_MASK = (1 << KEY_BITS) - 1


def restore(recovered: Recovered, model: TextModel, now_s: float) -> Request:
    """Returns the request with all its recorded tokens and endings, all of them visible. `now_s`: the monotonic clock.

    Raises: ValueError when the record contradicts itself, because the journal is damaged.
    """
    spec = recovered.spec
    request = Request(recovered.number, spec, detokenizers(model, spec.terms), now_s - recovered.age_s)
    request.identity = recovered.identity
    endings = {i: state.ended for i, state in enumerate(recovered.states) if state.ended is not None}
    endings |= {key & _INDEX_MASK: ended for key, ended in recovered.endings.items()}
    for state in recovered.states:
        _replay(request, state.row)
        _suspect(request, state.row.key & _INDEX_MASK, state.suspect)
    items = _items_of(request, recovered)
    request.runs = [run for state in recovered.states[:1] for run in state.runs]
    for row in joined(recovered.steps):
        items += _replay(request, row)
    for sequence in request.sequences:
        ended = endings.get(sequence.index)
        if ended is not None:
            sequence.end(ended)
            if ended.lasted_s:
                sequence.note_times(ended.first_token_s, ended.lasted_s)
        sequence.n_submissions = 1  # a scheduler may have had it: it is not new any more
        sequence.publish(len(sequence.ids), sequence.ended is not None)
        request.n_open -= sequence.is_end_visible
    if items.count(RUN_ITEM) != len(request.runs):
        raise ValueError(f"runs: expected {items.count(RUN_ITEM)} as in the items, got {len(request.runs)}")
    if len(request.sequences) > 1 or PING_ITEM in items:  # otherwise there is only one order
        request.stream_items[:] = _in_order(request.stream_items, items)
    while request.is_over and request.stream_items[-1] == PING_ITEM:  # recorded after the last ending, so it was not shown
        request.stream_items.pop()
    request.is_recorded, request.n_restored_items = True, len(request.stream_items)
    if request.n_generated:
        request.first_token_s, request.is_first_token_timed = now_s, False
    return request


def restore_finished(number: int, record: RequestRecord, models: ServedModels, now_s: float) -> Request:
    """As `restore`, of a finished request. Its latency is what the journal has recorded.

    With another tokenizer than that of its model it has failed, and its tokens have no text.
    Raises: ValueError when the record contradicts itself.
    """
    recovered = Recovered(number, decode_spec(record.spec), [], age_s=record.age_s, identity=record.identity)
    model = models.accepted(recovered.spec.model, record.identity)
    if record.finish is not None:
        recovered.states = decode_states(record.finish.states)
    if record.identity.tokenizer != model.identity.tokenizer:
        recovered.endings = dict.fromkeys(range(recovered.spec.n_sequences), model_changed())
    request = restore(recovered, model.text, now_s)
    request.ended_s = now_s
    return request


def joined(rows: Iterable[StepRow]) -> Iterator[StepRow]:
    """The same rows, but one row instead of several if they are the next tokens of one sequence, without log probabilities: a
    journal has a row for each step, and each row that is replayed takes a hundred times as long as a token in it."""
    whole: StepRow | None = None  # the first row of those that are joined
    parts: list[bytes] = []
    n_bytes = 0
    for row in rows:
        is_next = whole is not None and row.key == whole.key and row.first - whole.first == n_bytes >> 2
        if is_next and is_plain(row):
            parts.append(row.ids)
            n_bytes += len(row.ids)
            continue
        if whole is not None:
            yield msgspec.structs.replace(whole, ids=b"".join(parts))
        whole, parts, n_bytes = (row, [row.ids], len(row.ids)) if is_plain(row) else (None, [], 0)
        if whole is None:
            yield row
    if whole is not None:
        yield msgspec.structs.replace(whole, ids=b"".join(parts))


def _replay(request: Request, row: StepRow) -> list[int]:
    """Append a row to its sequence; returns the items that it stands for. Raises: ValueError."""
    index = row.key & _INDEX_MASK
    if index == PING_ITEM:
        return [PING_ITEM]
    if index == RUN_ITEM:
        request.runs.append(row.first)
        return [RUN_ITEM]
    if index == SUSPICION_ROW:
        _suspect(request, row.first, decode_suspect(row.ids))
        return []
    if index >= len(request.sequences):
        raise ValueError(f"key: expected a sequence below {len(request.sequences)}, got {index}")
    try:
        n_taken = replay_row(request.sequences[index], row)
    except Gap as gap:
        raise ValueError(f"journal: {gap}") from None
    return [index] * n_taken if row.ids else [END_ITEM | index]


def _suspect(request: Request, index: int, suspect: SuspectRecord | None) -> None:
    """Set what a sequence is suspected of, so that it is not tried from the beginning. Raises: ValueError."""
    if index >= len(request.sequences):
        raise ValueError(f"suspect: expected a sequence below {len(request.sequences)}, got {index}")
    if suspect is not None:
        request.sequences[index].suspicion = suspect.suspicion
        request.sequences[index].replicas_harmed = frozenset(suspect.replicas_harmed)


def _items_of(request: Request, recovered: Recovered) -> list[int]:
    """The items of the recorded states, whose rows have been replayed. Raises: ValueError."""
    if not recovered.states:
        return []
    if recovered.states[0].stream_items:
        return np.frombuffer(recovered.states[0].stream_items, "<i4").tolist()
    tokens = [s.index for s in request.sequences for _ in s.ids]
    ends = [END_ITEM | index for index, state in enumerate(recovered.states) if state.ended is not None]
    return tokens + ends


def _in_order(items: Iterable[int], recorded: list[int]) -> array[int]:
    """The items of a request in their recorded order. Those without a record, because rows were lost, come last."""
    left = Counter(items)
    ordered = array("i")
    for item in recorded:
        if item not in (PING_ITEM, RUN_ITEM):
            if not left[item]:
                continue
            left[item] -= 1
        ordered.append(item)
    ordered.extend(left.elements())
    return ordered
