"""Verdicts and pauses of a kill drill on streams made by hand."""

from __future__ import annotations

import pytest

from ops.bench.drill_figures import Kill, StreamSeen, drill_figures, pauses_after


def stream(ids: list[int], arrivals_s: list[float], error: str = "") -> StreamSeen:
    """A stream that should give 1, 2, 3."""
    return StreamSeen(0.0, [1, 2, 3], ids, arrivals_s, error=error)


def test_a_stream_is_right_wrong_or_lost() -> None:
    assert stream([1, 2, 3], []).verdict == "right"
    assert stream([1, 2], []).verdict == "lost"
    assert stream([1, 2, 3], [], error="Unavailable").verdict == "lost"
    assert stream([1, 3], [], error="Unavailable").verdict == "wrong"
    assert stream([1, 2, 3, 4], []).verdict == "wrong"
    assert stream([2, 3], []).verdict == "wrong"


def test_a_pause_lasts_from_the_kill_to_the_next_tokens_of_streams_on_their_way() -> None:
    running = stream([1, 2], [1.0, 3.5])
    ended = stream([1, 2, 3], [0.5, 1.0])
    not_begun = StreamSeen(2.5, [1], [1], [3.0])
    cut = stream([1], [1.0])
    assert pauses_after(Kill(2.0, "worker/0.0", 1), [running, ended, not_begun, cut]) == [1.5]


def test_what_was_already_on_its_way_does_not_hide_the_pause() -> None:
    late = stream([1, 2, 3], [1.0, 2.01, 2.02, 3.0, 3.01])
    assert pauses_after(Kill(2.0, "worker/0.0", 1), [late]) == [pytest.approx(0.98)]
    assert pauses_after(Kill(2.0, "worker/0.0", 1), [late], until_s=2.5) == [pytest.approx(0.98)]
    assert pauses_after(Kill(2.0, "worker/0.0", 1), [late], until_s=2.011) == [pytest.approx(0.01)]


def test_the_figures_count_everything_once() -> None:
    kills = [Kill(2.0, "worker/0.0", 1), Kill(2.5, "gateway/0", 1)]
    figures = drill_figures(kills, [stream([1, 2, 3], [1.0, 3.0]), stream([1], [1.0], "cut"), stream([9], [1.0])])
    assert (figures["right"], figures["lost"], figures["wrong"], figures["tokens"]) == (1, 1, 1, 5)
    assert figures["kills_by_role"] == {"worker": 1, "gateway": 1}
    assert figures["pause_ms_by_role"]["worker"]["p50"] == 1000.0
    assert figures["pause_ms"]["count"] == 2
    assert figures["errors"] == ["cut"]


def test_nothing_seen_has_no_pauses() -> None:
    assert drill_figures([], [])["pause_ms"] is None
