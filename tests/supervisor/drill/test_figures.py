"""The figures of a drill, from streams written by hand."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from supervisor.drill.figures import (
    FaultRow,
    Round,
    add_up,
    as_json,
    beside_calm,
    healed_s,
    outcome_of,
    pause_s,
    percentile,
    rows_of,
    tallies_of,
)
from supervisor.drill.report import bar, print_report
from supervisor.drill.streams import DrillStream, prompts_of

REFERENCE = {"p": "a b c d"}


def stream(
    text: str = "a b c d", arrivals_s: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0), is_complete: bool = True
) -> DrillStream:
    pieces = [text[at : at + 2] for at in range(0, len(text), 2)]
    return DrillStream("p", 0.5, pieces, list(arrivals_s), is_complete)


def test_outcomes() -> None:
    assert outcome_of(stream(), REFERENCE) == "right"
    assert outcome_of(stream("a b ", is_complete=False), REFERENCE) == "lost"
    assert outcome_of(stream("a b "), REFERENCE) == "wrong"  # complete, but too short
    assert outcome_of(stream("a x c d"), REFERENCE) == "wrong"
    assert outcome_of(stream("a b c d e"), REFERENCE) == "wrong"
    assert outcome_of(stream("whatever"), {}) == "right"  # an unsteady prompt is judged by its completeness


def test_a_pause_begins_at_the_fault() -> None:
    assert pause_s(stream(arrivals_s=(1.0, 2.0, 5.0, 5.5)), 2.5) == 2.5
    assert pause_s(stream(arrivals_s=(1.0, 2.0, 3.0, 9.0)), 2.5) == 6.0
    early = stream(arrivals_s=(1.0, 2.0, 5.0, 9.5))
    assert pause_s(early, 1.5, until_s=3.0) == 3.0, "it outlasts the next fault, and counts for both"
    assert pause_s(early, 1.5, until_s=1.8) == 0.5
    assert pause_s(stream(), 0.7) is None  # had no text yet
    assert pause_s(stream(), 4.5) is None  # got no more text


def test_a_pause_is_healed_with_the_first_text_after_it() -> None:
    assert healed_s(stream(arrivals_s=(1.0, 2.0, 5.0, 5.5)), 4.5) == 0.5
    assert healed_s(stream(), 4.5) is None, "it had ended before"
    assert healed_s(stream(), 0.5) is None, "it had not begun"
    paused = [Round("pause:x:2", "x/0", 1.5, 0.1, [stream(arrivals_s=(1.0, 2.0, 3.7, 4.0)), stream()], continued_s=3.5)]
    (row,) = rows_of([*paused, Round("pause:x:2", "x/0", 2.5, 0.1, [stream()], continued_s=3.9)], REFERENCE)
    assert row.healed_max_ms == 500.0
    (row,) = rows_of([Round("kill:x", "x/0", 2.5, 0.1, [stream()])], REFERENCE)
    assert row.healed_max_ms == 0.0


def test_an_answer_that_its_client_found_wrong_is_wrong() -> None:
    seen = stream("whatever")
    seen.is_wrong = True
    assert outcome_of(seen, {}) == "wrong"


def test_rows_count_the_streams_that_were_under_way() -> None:
    over = stream(arrivals_s=(0.6, 0.7, 0.8, 0.9))
    cut = stream("a b ", (1.0, 2.0), is_complete=False)
    rounds = [Round("kill:x", "x/0", 2.5, 0.3, [stream(), over, cut]), Round("kill:x", "x/0", 2.5, 0.7, [stream("x")])]
    (row,) = rows_of(rounds, REFERENCE)
    assert (row.rounds, row.streams, row.right, row.lost, row.wrong) == (2, 3, 1, 1, 1)
    assert row.back_max_s == 0.7
    assert row.pause_max_ms == 1000.0


def test_tallies_of_two_drills_are_added_up_before_their_percentiles_are_taken() -> None:
    first = tallies_of([Round("kill:x", "x/0", 2.5, 0.3, [stream(arrivals_s=(1.0, 2.0, 3.0, 4.0))])], REFERENCE)
    second = tallies_of(
        [Round("kill:x", "x/0", 2.5, 0.9, [stream("a b ", (1.0, 2.0), is_complete=False), stream()])], REFERENCE
    )
    other = tallies_of([Round("kill:y", "y/0", 2.5, 0.1, [stream(arrivals_s=(1.0, 2.0, 9.0, 9.5))])], REFERENCE)
    x, y = (tally.row for tally in add_up([*first, *other, *second]))
    assert (x.rounds, x.streams, x.right, x.lost, x.pause_max_ms, x.back_max_s) == (2, 3, 2, 1, 1000.0, 0.9)
    assert (y.fault, y.streams, y.pause_p50_ms) == ("kill:y", 1, 6500.0)


def test_each_row_tells_the_calm_pause_and_its_own_in_steps() -> None:
    pauses_ms = {"no fault": 55.0, "x": 175.0}
    calm, killed = (FaultRow(name, 1, 4, 4, 0, 0, 20.0, p99_ms, 200.0, 0.1) for name, p99_ms in pauses_ms.items())
    rows = beside_calm([calm, killed], step_ms=50.0)
    assert [(row.calm_p99_ms, row.pause_steps_p99) for row in rows] == [(55.0, 1.1), (55.0, 3.5)]
    assert [row.pause_steps_p99 for row in beside_calm([calm, killed], step_ms=0.0)] == [0.0, 0.0], "another server"
    text = io.StringIO()
    print_report(rows, "a title", Console(file=text, width=80))
    lines = text.getvalue().splitlines()
    assert lines[1].split() == ["fault", "streams", "lost", "wrong", "p50", "p99", "max", "calm", "steps", "back"]
    assert lines[4].split() == ["x", "4", "0", "0", "20", "175", "200", "55", "3.5", "0.10"]


def test_percentiles() -> None:
    assert percentile([], 0.5) == 0.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0, 2.0], 0.99) == 2.0


def test_a_server_that_never_came_back_is_null_in_json() -> None:
    row = FaultRow("kill:x", 1, 1, 0, 1, 0, 0.0, 0.0, 0.0, math.inf)
    assert json.loads(json.dumps(as_json([row], {"url": "u"})))["rows"][0]["back_max_s"] is None


def test_the_table_fits_eighty_columns() -> None:
    row = FaultRow("kill:cache_directory", 20, 512, 500, 12, 0, 15_600.4, 19_500.1, 20_000.0, 31.25)
    text = io.StringIO()
    print_report([row], "a title", Console(file=text, width=80))
    assert "kill:cache_directory" in text.getvalue()
    for number in ("512", "12", "15600", "19500", "20000", "31.25"):
        assert number in text.getvalue()


@pytest.mark.parametrize("fault", ["kill:scheduler", "pause:scheduler:10", "kill:custodian"])
def test_the_name_of_a_fault_stays_whole_beside_all_columns(fault: str) -> None:
    row = FaultRow(fault, 20, 512, 500, 12, 0, 5_600.4, 9_500.1, 9_900.0, 31.25, 224.0, 455.0, 58.7)
    text = io.StringIO()
    title = "hash-chain at https://localhost:8000: 16 streams of 256 tokens"
    print_report([row], title, Console(file=text, width=100))
    assert text.getvalue().splitlines()[0].rstrip() == f"{title} (pauses in ms, back in s)", "wider than the table"
    text = io.StringIO()
    print_report([row], title, Console(file=text, width=80))
    assert fault in text.getvalue()


def test_no_pause_is_told_where_every_stream_was_lost() -> None:
    text = io.StringIO()
    print_report([FaultRow("kill:x", 1, 4, 0, 4, 0, 0.0, 0.0, 0.0, 0.76)], "a title", Console(file=text, width=80))
    assert text.getvalue().splitlines()[3].split() == ["kill:x", "4", "4", "0", "-", "-", "-", "0.76"]


def test_bars_are_logarithmic() -> None:
    assert [len(bar(ms)) for ms in (0.0, 1.0, 10.0, 100_000.0, 1e9)] == [0, 0, 6, 30, 30]


def test_prompts_differ_from_their_first_word() -> None:
    prompts = prompts_of(20, 5, seed=1)
    assert len({prompt.split()[0] for prompt in prompts}) == 20
    assert prompts == prompts_of(20, 5, seed=1)
