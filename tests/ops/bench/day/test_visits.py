"""The figures of a long run are counts of its requests and times of its deaths."""

from __future__ import annotations

import math

from ops.bench.day.report import day_as_json, minute_lines
from ops.bench.day.visits import Death, Visit, figures_of, note_gaps, visit_of
from supervisor.drill.streams import DrillStream


def _visit(tenant: str, began_s: float, outcome: str = "right", first_s: float = 0.1) -> Visit:
    return Visit(tenant, began_s, first_s, 10, outcome, "" if outcome == "right" else "HTTP 503: overloaded")


def test_availability_is_the_part_of_the_requests_that_were_answered_rightly() -> None:
    visits = [_visit("a", 0.0), _visit("a", 61.0, "lost"), _visit("b", 62.0), _visit("b", 63.0, "refused", math.inf)]
    figures = figures_of(visits, [], 0.0)
    assert (figures.requests, figures.lost, figures.refused, figures.wrong) == (4, 1, 1, 0)
    assert figures.availability == figures.error_rate == 0.5
    assert [(row.tenant, row.requests, row.failed, row.first_p99_ms) for row in figures.tenants] == [
        ("a", 2, 1, 100.0),
        ("b", 2, 1, 100.0),
    ]
    assert [(minute.requests, minute.failed) for minute in figures.minutes] == [(1, 0), (3, 2)]
    assert figures.errors == [("HTTP 503: overloaded", 2)]


def test_a_run_without_requests_is_not_available() -> None:
    assert figures_of([], [], 0.0).availability == 0.0


def test_a_request_that_was_never_accepted_is_refused() -> None:
    stream = DrillStream("p", began_s=5.0, error="HTTP 429: busy")
    assert visit_of("a", stream, "lost").outcome == "refused"
    stream.is_accepted = True
    assert visit_of("a", stream, "lost").outcome == "lost"
    assert visit_of("a", stream, "lost").first_s == math.inf


def test_a_death_has_the_gaps_of_the_streams_that_it_met() -> None:
    deaths = [Death("worker", 10.0, 0.5, until_s=20.0), Death("gateway", 20.0)]
    met = DrillStream("p", began_s=9.0, pieces=["a", "b", "c"], arrivals_s=[9.5, 10.5, 10.6])
    later = DrillStream("p", began_s=11.0, pieces=["a", "b"], arrivals_s=[11.5, 12.5])
    note_gaps(met, deaths)
    note_gaps(later, deaths)
    assert deaths[0].gaps_s == [0.5]
    assert not deaths[1].gaps_s


def test_a_death_without_a_successor_is_never_repaired() -> None:
    figures = figures_of([_visit("a", 0.0)], [Death("worker", 1.0)], 0.0)
    assert figures.repair_p99_s == math.inf
    assert day_as_json(figures)["repair_p99_s"] is None
    assert [(row.role, row.deaths) for row in figures.deaths] == [("worker", 1)]


def test_a_line_has_an_hour_and_marks_the_minutes_with_failures() -> None:
    visits = [_visit("a", 60.0 * minute, "lost" if minute == 61 else "right") for minute in range(62)]
    first, second = minute_lines(figures_of(visits, [], 0.0))
    assert first.startswith("minute    0")
    assert second.startswith("minute   60")
    assert (first.count("[red]"), second.count("[red]")) == (0, 1)
