"""Requests without a reader: only time counts in which their clients could have come back."""

from __future__ import annotations

from actors.gateway.lifecycle.orphans import POLL_EVERY_S, Orphans
from actors.gateway.requests.reader import Reader
from tests.support.gateway.request_examples import request_of, spec_of

PATIENCE_S = 10.0


def looks(orphans: Orphans, requests: list, start_s: float, stop_s: float) -> list[float]:
    """Look as often as the gateway does; returns the times at which a request was found."""
    n = int((stop_s - start_s) / POLL_EVERY_S)
    times = [start_s + POLL_EVERY_S * (i + 1) for i in range(n)]
    return [now_s for now_s in times if orphans.expired(requests, now_s)]


def test_a_request_without_a_reader_waits_for_one() -> None:
    orphans, request = Orphans(PATIENCE_S, 0.0), request_of(spec_of())
    assert looks(orphans, [request], 0.0, 100.0) == []
    orphans.add(request, 100.0)
    assert looks(orphans, [request], 100.0, 112.0) == [111.0, 112.0]
    reader = Reader(request)
    assert looks(orphans, [request], 112.0, 200.0) == []
    reader.close()


def test_time_in_which_the_gateway_was_stopped_does_not_count() -> None:
    orphans, request = Orphans(PATIENCE_S, 0.0), request_of(spec_of())
    assert looks(orphans, [request], 0.0, 100.0) == []
    orphans.add(request, 100.0)
    assert looks(orphans, [request], 100.0, 103.0) == []
    assert looks(orphans, [request], 150.0, 157.0) == [], "it was stopped for 47 s"
    assert looks(orphans, [request], 157.0, 160.0) == [158.0, 159.0, 160.0]


def test_time_in_which_the_gateway_of_a_client_is_away_does_not_count() -> None:
    orphans, lost, other = Orphans(PATIENCE_S, 0.0), request_of(spec_of()), request_of(spec_of())
    orphans.add(lost, 5.0, with_gateway=True)
    orphans.add(other, 5.0)
    assert looks(orphans, [lost], 0.0, 100.0) == []
    orphans.gateways_serve([lost, other], 100.0)
    assert orphans.expired([lost, other], 101.0) == [other]
    assert looks(orphans, [lost], 101.0, 111.0) == [111.0]
