"""What a new request has to expect, from the reports of the replicas that it may go to."""

from __future__ import annotations

from actors.gateway.dispatch.replica_loads import ReplicaLoads
from actors.gateway.overload.outlook import Outlook
from messages.generation.replica_load import ReplicaLoad
from tests.support.gateway.request_examples import load_of


def test_the_wait_is_that_of_all_replicas_together_and_the_level_that_of_the_best() -> None:
    loads, names = ReplicaLoads(), ["scheduler/0", "scheduler/1"]
    outlook = Outlook(loads, lambda: names, lambda: 5000)
    assert (outlook.wait_s, outlook.level, outlook.retry_after_s(10)) == (0.0, 0, 1.0), "nothing is known"
    loads.note("scheduler/0", load_of(waiting_tokens=3000, level=4))
    assert (outlook.wait_s, outlook.level) == (30.0, 0), "the other one has told no level"
    loads.note("scheduler/1", load_of(waiting_tokens=1000, level=2))
    assert (outlook.wait_s, outlook.level) == (20.0, 2)
    assert [outlook.retry_after_s(n) for n in (1, 1000, 10**9)] == [1.0, 5.0, 60.0]


def test_without_a_replica_what_waits_here_counts_at_the_last_pace() -> None:
    loads, names = ReplicaLoads(), ["scheduler/0"]
    outlook = Outlook(loads, lambda: names, lambda: 5000)
    loads.note("scheduler/0", load_of(level=4))
    assert (outlook.wait_s, outlook.level) == (0.0, 4)
    loads.remove("scheduler/0")
    names.clear()
    assert (outlook.wait_s, outlook.level) == (50.0, 0)


def test_the_wait_is_counted_again_after_a_report_or_another_choice_of_replicas_and_not_for_each_request() -> None:
    loads, asked = ReplicaLoads(), list[str]()
    both = ["scheduler/0", "scheduler/1"]
    names, of = both, loads.of

    def note(name: str) -> ReplicaLoad | None:
        asked.append(name)
        return of(name)

    loads.of = note  # pyright: ignore[reportAttributeAccessIssue]
    n_queued = 5000
    outlook = Outlook(loads, lambda: names, lambda: n_queued)
    loads.note("scheduler/0", load_of(waiting_tokens=3000))
    assert [outlook.wait_s for _ in range(5)] == [30.0] * 5
    assert asked == both
    loads.note("scheduler/1", load_of(waiting_tokens=1000))
    assert outlook.wait_s == 20.0
    names = ["scheduler/1"]
    assert outlook.wait_s == 10.0
    names = both
    assert outlook.wait_s == 20.0
    loads.remove("scheduler/0")
    assert outlook.wait_s == 10.0
    loads.remove("scheduler/1")  # what waits here counts, which changes without a report
    assert outlook.wait_s == 50.0
    n_queued = 1000
    assert outlook.wait_s == 10.0
