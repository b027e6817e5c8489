"""What the gateway's endpoints need of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.page.collector import Collector, OwnGateway
from actors.gateway.page.feed import LiveFeed


@dataclass(frozen=True)
class LivePage:
    """The feed for viewers here, and the collector, which other gateways ask for the requests of this one."""

    feed: LiveFeed
    collector: Collector


def live_page_of(own: OwnGateway, manager: RequestManager, other_sockets: Sequence[str], *, has_keys: bool) -> LivePage:
    """The page of a gateway. Nothing runs before somebody looks."""
    collector = Collector(own, manager, other_sockets, has_keys=has_keys)
    return LivePage(LiveFeed(collector.collect), collector)
