"""Links that lose messages show in the metrics of their actors."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from messages.transport.link_metrics import LinkMetrics
from messages.transport.mailbox_core import MailboxStatistics


def test_both_directions_are_counted() -> None:
    counts = MailboxStatistics(sent=9, received=9, refused=0, stale=0, lost=3, backlog=0, links_lost=2, sent_again=40)
    registry = CollectorRegistry()
    registry.register(LinkMetrics(lambda: counts))
    assert registry.get_sample_value("tardigrade_links_lost_total", {"direction": "to"}) == 2
    assert registry.get_sample_value("tardigrade_links_lost_total", {"direction": "from"}) == 3
    assert registry.get_sample_value("tardigrade_messages_sent_again_total") == 40
