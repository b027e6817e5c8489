"""The directory's actor over a recording mailbox: snapshots are asked for again when they do not come."""

from __future__ import annotations

from typing import Any

import pytest

from actors.cache_directory.directory_actor import DirectoryActor
from actors.cache_directory.prefix_index import SnapshotRequests
from actors.cache_directory.settings import DirectorySettings
from messages.caches import prefixes
from messages.transport.mailbox import Delivery
from messages.wire.arrays import uint64s
from tests.support.memory_cluster import spawn_spec_of
from tests.support.recording_mailbox import RecordingMailbox

SCHEDULER = "scheduler/0"


class Bench:
    """A directory and its clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        make: Any = RecordingMailbox
        self.actor = DirectoryActor(spawn_spec_of("cache_directory/0", DirectorySettings()), make, lambda: self.now_s)
        self.post: Any = self.actor.mailbox

    def hears(self, message: Any, sender: str = SCHEDULER) -> None:
        """One message, as the actor's loop hands it over."""
        delivery = Delivery(sender=sender, sender_incarnation=1, message=message)
        self.actor.handlers()[type(message)](delivery, message)
        self.actor.after_mail()

    def update(self, number: int) -> None:
        """A numbered update with one page."""
        self.hears(prefixes.PagesSealed(number=number, hashes=uint64s([number])))

    def asked(self) -> int:
        """How often the snapshot has been asked for."""
        return [type(message) for _, message in self.post.sent].count(prefixes.InventoryWanted)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_gap_is_asked_about_once_while_the_answer_may_come(bench: Bench) -> None:
    for number in (5, 6, 7):
        bench.update(number)
    assert bench.asked() == 1


def test_a_lost_answer_is_asked_for_again_until_it_comes(bench: Bench) -> None:
    bench.update(5)
    for n_asked in (2, 3):
        bench.now_s += 1.1
        bench.hears(prefixes.FindPrefix(query=1, hashes=uint64s([5])), "gateway/0")  # any mail will do
        assert bench.asked() == n_asked
    bench.hears(prefixes.PagesSealed(number=8, hashes=uint64s([5, 6]), snapshot=True))
    bench.now_s += 60.0
    bench.update(9)
    assert bench.asked() == 3
    assert bench.actor._index.match([5, 6]) == {SCHEDULER: 2}


def test_a_full_link_is_no_reason_to_die_or_to_forget(bench: Bench) -> None:
    bench.post.is_full = True
    bench.update(5)
    bench.post.is_full = False
    bench.now_s += 1.1
    bench.update(6)
    assert bench.asked() == 1


def test_a_dead_scheduler_is_not_asked(bench: Bench) -> None:
    bench.update(5)
    bench.actor.peer_down(SCHEDULER, 1)
    bench.now_s += 1.1
    bench.hears(prefixes.FindPrefix(query=1, hashes=uint64s([5])), "gateway/0")
    assert bench.asked() == 1
    bench.update(1)  # its next life
    assert bench.asked() == 2


def test_questions_are_due_at_their_times() -> None:
    requests = SnapshotRequests(patience_s=2.0)
    assert requests.want("scheduler/0")
    assert not requests.want("scheduler/0")
    assert requests.take_due(10.0) == ["scheduler/0"]
    assert requests.want("scheduler/1")
    assert requests.take_due(11.0) == ["scheduler/1"]
    assert requests.take_due(12.0) == ["scheduler/0"]
    requests.settle("scheduler/0")
    assert requests.take_due(20.0) == ["scheduler/1"]


def test_the_lag_of_each_update_is_counted_when_questions_see_it(bench: Bench) -> None:
    bench.hears(prefixes.PagesSealed(number=1, hashes=uint64s([1]), snapshot=True, sent_s=99.0))
    bench.hears(prefixes.PagesSealed(number=2, hashes=uint64s([2]), sent_s=99.5))
    bench.hears(prefixes.PagesDropped(number=3, hashes=uint64s([2]), sent_s=99.75))
    assert bench.actor.lag.seconds.count == 3
    assert bench.actor.lag.seconds._sum == 1.75


@pytest.mark.parametrize(("number", "sent_s"), [(7, 999.0), (2, 0.0), (2, 1001.0), (2, 300.0)])
def test_no_lag_is_counted_that_is_not_known_or_that_of_an_update_that_is_not_applied(
    bench: Bench, number: int, sent_s: float
) -> None:
    bench.now_s = 1000.0
    bench.hears(prefixes.PagesSealed(number=1, hashes=uint64s([1]), snapshot=True))
    bench.hears(prefixes.PagesSealed(number=number, hashes=uint64s([2]), sent_s=sent_s))
    assert not bench.actor.lag.seconds.count


def test_the_figures_of_the_index(bench: Bench) -> None:
    bench.hears(prefixes.PagesSealed(number=1, hashes=uint64s([5, 7, 9]), snapshot=True))
    for query, asked in enumerate(([5, 7], [5, 8], [6])):
        bench.hears(prefixes.FindPrefix(query=query, hashes=uint64s(asked)), "gateway/0")
    told = bench.actor.statistics()
    assert (told["hashes"], told["prefix_hits"], told["prefix_misses"]) == (3.0, 2.0, 1.0)
    assert told["index_bytes"] == bench.actor._index.n_bytes >= 3 * 8
    assert bench.actor.registry.get_sample_value("tardigrade_directory_pages") == 3.0
    assert bench.actor.registry.get_sample_value("tardigrade_directory_bytes") == told["index_bytes"]
