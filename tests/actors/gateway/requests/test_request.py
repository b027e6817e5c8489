"""Laws of one request: tokens without a gap or a repeat, one ending, nothing visible that is not recorded, replay is equal."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.journal.records import Recovered, decode_states, decode_step, encode_states, encode_step, row_of, states_of
from actors.gateway.journal.restore import restore
from actors.gateway.requests.reader import Reader
from actors.gateway.requests.request import Gap, Request
from actors.gateway.requests.request_spec import Ended
from actors.gateway.text.detokenizer import ByteText
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.generation.logprobs import TokenLogprobs
from messages.outcomes import EndReason
from tests.support.gateway.request_examples import request_of, spec_of

IDS = st.lists(st.integers(0, 999), max_size=40)
MODEL = HashChainText()


def logprobs_for(ids: list[int], width: int) -> TokenLogprobs:
    chosen = -np.array(ids, "<f4") - 1
    top_ids = np.repeat(np.array(ids, "<i4"), width)
    return TokenLogprobs(chosen=chosen, width=width, top_ids=top_ids, top=np.repeat(chosen, width))


@given(IDS, st.lists(st.tuples(st.integers(0, 45), st.integers(0, 10)), max_size=30))
def test_re_delivery_is_harmless_and_gaps_are_refused(ids: list[int], deliveries: list[tuple[int, int]]) -> None:
    sequence = request_of(spec_of()).sequences[0]
    for first, count in deliveries:
        known, part = len(sequence.ids), ids[first : first + count]
        if first > known:
            with pytest.raises(Gap):
                sequence.accept(first, part)
        else:
            assert sequence.accept(first, part) == max(0, min(first + count, len(ids)) - known)
        assert sequence.ids == ids[: len(sequence.ids)]
    assert "".join(sequence.texts) == "".join(f"{i} " for i in sequence.ids)


def test_tokens_that_are_no_news_do_not_hide_a_loss() -> None:
    sequence = request_of(spec_of()).sequences[0]
    sequence.accept(0, [1, 2])
    sequence.n_losses = 3
    sequence.accept(0, [1, 2])
    assert sequence.n_losses == 3
    sequence.accept(2, [3])
    assert sequence.n_losses == 0


@given(st.permutations(["stop", "length", "cancelled", "failed"]))
def test_the_first_ending_is_the_only_one(reasons: list) -> None:
    sequence = request_of(spec_of()).sequences[0]
    assert [sequence.end(Ended(reason=reason)) for reason in reasons] == [True, False, False, False]
    assert sequence.ended is not None
    assert sequence.ended.reason == reasons[0]
    assert sequence.accept(0, [1]) == 0


def test_what_comes_after_the_ending_means_nothing() -> None:
    sequence = request_of(spec_of(stop=["7 1"])).sequences[0]
    assert sequence.accept(0, [97, 1, 0]) == 2
    assert sequence.accept(9, [5]) == 0
    assert sequence.ids == [97, 1]


def test_a_stop_string_ends_and_drops_what_follows() -> None:
    sequence = request_of(spec_of(stop=["2 3"])).sequences[0]
    assert sequence.accept(0, [1, 2, 3, 4, 5]) == 3
    assert ("".join(sequence.texts), sequence.ended) == ("1 ", Ended(reason="stop"))
    held = request_of(spec_of(stop=["2 9"])).sequences[0]
    held.accept(0, [1, 2])
    assert "".join(held.texts) == "1 "
    held.end(Ended(reason="length"))
    assert held.tail == "2 "


@pytest.mark.parametrize(("reason", "shown"), [("length", "stop"), ("failed", "failed"), ("cancelled", "cancelled")])
def test_the_rest_of_a_text_turns_no_failure_into_a_stop(reason: EndReason, shown: EndReason) -> None:
    """Half a character is held back to the end, and completes a stop string then."""
    table = [b"a", "é".encode()[:1]]
    request = Request(7, spec_of(stop=["a\ufffd"]), lambda prompt: ByteText(table), 0.0)
    (sequence,) = request.sequences
    sequence.accept(0, [0, 1])
    assert sequence.ended is None
    sequence.end(Ended(reason=reason))
    assert sequence.ended is not None
    assert sequence.ended.reason == shown


@given(IDS, st.lists(st.integers(0, 45), max_size=12), st.lists(st.integers(1, 9), max_size=12), st.integers(0, 40))
def test_readers_see_what_is_recorded_once_and_in_order(
    ids: list[int], published: list[int], limits: list[int], have: int
) -> None:
    request = request_of(spec_of())
    sequence = request.sequences[0]
    sequence.accept(0, ids)
    have = min(have, len(ids))
    sequence.publish(have, False)
    reader, seen, text = Reader(request, [have]), [], ""
    steps = [*sorted(min(p, len(ids)) for p in published if p > have), len(ids)]
    for step, limit in zip(steps, [*limits, *[1000] * len(steps)], strict=False):
        sequence.publish(max(step, sequence.n_visible), False)
        for piece in reader.take(limit):
            assert piece.first == have + len(seen)
            seen, text = seen + piece.ids, text + piece.text
        assert have + len(seen) <= sequence.n_visible
        assert not reader.is_done
    sequence.end(Ended(reason="length"))
    sequence.publish(len(ids), True)
    request.n_open -= 1
    pieces = reader.take()
    assert [p.ended.reason for p in pieces if p.ended] == ["length"]
    seen, text = seen + pieces[0].ids, text + pieces[0].text + pieces[0].tail
    assert (seen, text) == (ids[have:], "".join(f"{i} " for i in ids[have:]))
    assert reader.is_done
    assert reader.take() == []


@given(
    st.lists(IDS, min_size=1, max_size=3), st.integers(0, 40), st.booleans(), st.integers(-1, 3), st.sampled_from([[], ["7 1"]])
)
def test_a_replay_gives_the_same_request(sequences: list[list[int]], cut: int, ends: bool, width: int, stop: list[str]) -> None:
    request = request_of(spec_of(len(sequences), stop, width))
    rows, endings = [], {}
    for sequence, ids in zip(request.sequences, sequences, strict=True):
        for start, stop_at in pairwise(sorted({0, min(cut, len(ids)), len(ids)})):
            part = ids[start:stop_at]
            before = len(sequence.ids)
            sequence.accept(start, part, logprobs_for(part, width) if width >= 0 else None, n_cached=9 if start else 5)
            rows.append(row_of(sequence, before, len(sequence.ids)))
    states = states_of(request)
    for sequence in request.sequences:
        if ends and sequence.end(Ended(reason="length", n_cached=2)):
            endings[sequence.key] = sequence.ended
    record = decode_step(encode_step(rows, list(endings.items())))
    for recovered in (
        Recovered(7, request.spec, [], record.rows, dict(record.endings)),
        Recovered(7, request.spec, decode_states(encode_states(states)), record.rows, dict(record.endings)),
    ):
        again = restore(recovered, MODEL, 0.0)
        for old, new in zip(request.sequences, again.sequences, strict=True):
            assert (new.ids, new.texts, new.tail, new.ended) == (old.ids, old.texts, old.tail, old.ended)
            assert new.n_cached == old.n_cached == (5 if old.ids else 0)
            assert new.n_visible == len(old.ids)
            a, b = old.logprobs.of(0, len(old.ids)), new.logprobs.of(0, len(old.ids))
            assert a.chosen.tolist() == b.chosen.tolist()
            assert a.top.tolist() == b.top.tolist()
        assert again.is_over == all(s.ended is not None for s in request.sequences)


def test_a_record_with_a_hole_is_refused() -> None:
    request = request_of(spec_of())
    request.sequences[0].accept(0, [1, 2, 3, 4])
    row = row_of(request.sequences[0], 2, 4)
    with pytest.raises(ValueError, match="journal"):
        restore(Recovered(7, request.spec, [], [row]), MODEL, 0.0)
