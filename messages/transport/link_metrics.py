"""Metrics of a mailbox: how often its links to and from other actors have lost messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from messages.transport.mailbox_core import MailboxStatistics


class LinkMetrics(Collector):
    """Reads the counts of one mailbox whenever somebody asks for them."""

    def __init__(self, statistics: Callable[[], MailboxStatistics]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """The present numbers."""
        now = self._statistics()
        text = "Times that messages between this actor and another one were lost and asked for or sent again, by direction."
        lost = CounterMetricFamily("tardigrade_links_lost", text, labels=["direction"])
        lost.add_metric(["to"], now.links_lost)
        lost.add_metric(["from"], now.lost)
        yield lost
        yield CounterMetricFamily("tardigrade_messages_sent_again", "Messages that this actor has sent again.", now.sent_again)
