"""Begins and ends the traces of a gateway. Where they are off nothing is imported, and nothing is called later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from actors.gateway.dispatch.post import Post
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from actors.gateway.tracing.tracing import Tracing


def begin_tracing(
    settings: GatewaySettings, name: str, incarnation: int, post: Post, manager: RequestManager, registry: CollectorRegistry
) -> Tracing | None:
    """The traces of the gateway `name`, attached to its request manager; None if they are off. Raises: ConfigError."""
    if settings.traces is None:
        return None
    from actors.gateway.tracing.tracing import attached

    return attached(settings, settings.traces, name, incarnation, post, manager, registry)


async def stop_tracing(tracing: Tracing | None) -> None:
    """The gateway ends."""
    if tracing is not None:
        await tracing.stop()
