"""Resets of caches for ZeroMQ clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.gateway.access.audited import Audit, shown_parameters, shown_with
from actors.gateway.access.key_ring import KeyHolder
from actors.gateway.admission.spec_builder import SpecBuilder
from actors.gateway.bodies.schema import read_body
from actors.gateway.cache_reset.cache_reset import CacheReset
from actors.gateway.cache_reset.operator_right import check_operator
from actors.gateway.cache_reset.reset_body import CacheResetBody, wanted_of
from actors.gateway.models.served_models import ServedModels
from actors.gateway.settings import GatewaySettings
from messages import public
from messages.access.audit_log import Door

_UNIX_SOCKET = "localhost:"  # how the address of a peer begins that came by ipc; no IP address does


def is_operator(settings: GatewaySettings, address: str) -> bool:
    """True for whoever came through the Unix socket, which only the user of the server can open. `address`: of the client, if
    there is a TCP endpoint beside that socket."""
    return not settings.zeromq_tcp_endpoint or address.startswith(_UNIX_SOCKET)


@dataclass(frozen=True)
class ResetAsker:
    """Who sent a message. `address`: as the socket tells it. `is_free`: shows no further key, because it came through the Unix
    socket or has an admin's API key. `holder`: of its API key, if keys are asked for."""

    address: str
    is_free: bool
    holder: KeyHolder | None

    @classmethod
    def of(cls, settings: GatewaySettings, address: str, holder: KeyHolder | None) -> ResetAsker:
        """The sender of the message that is being received."""
        is_free = is_operator(settings, address) if holder is None else holder.is_admin
        return cls("" if address.startswith(_UNIX_SOCKET) else address, is_free, holder)


async def carry_out(
    caches: CacheReset,
    settings: GatewaySettings,
    models: ServedModels,
    builder_of: Callable[[int], SpecBuilder],
    message: public.CacheResetWanted,
    asker: ResetAsker,
    audit: Audit,
    send: Callable[[public.CachesReset], object],
) -> None:
    """Answer one call, and write a line of it. Raises: Refusal for an asker who has no right, or a condition that is wrong."""

    async def work() -> public.CachesReset:
        if not asker.is_free:
            check_operator(settings.operator_key, message.operator_key)
        done = await caches.forget(await wanted_of(read_body(message.body, CacheResetBody), settings, models, builder_of))
        return public.CachesReset(call=message.call, pages=done.pages, answers=done.answers)

    parameters = shown_parameters(message.body, shown_with(settings))
    is_operator = asker.is_free and asker.holder is None
    action = type(message).__name__
    record = audit.record(Door.ZEROMQ, action, asker.address, asker.holder, parameters, is_operator=is_operator)
    send(await audit.around(record, work))
