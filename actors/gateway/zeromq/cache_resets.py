"""Resets of caches for ZeroMQ clients."""

from __future__ import annotations

from collections.abc import Callable

from actors.gateway.admission.prompt_encoder import PromptEncoder
from actors.gateway.bodies.schema import read_body
from actors.gateway.cache_reset.cache_reset import CacheReset
from actors.gateway.cache_reset.operator_right import check_operator
from actors.gateway.cache_reset.reset_body import CacheResetBody, wanted_of
from actors.gateway.settings import GatewaySettings
from messages import public

_UNIX_SOCKET = "localhost:"  # how the address of a peer begins that came by ipc; no IP address does


def is_operator(settings: GatewaySettings, address: str) -> bool:
    """True for whoever came through the Unix socket, which only the user of the server can open. `address`: of the client, if
    there is a TCP endpoint beside that socket."""
    return not settings.zeromq_tcp_endpoint or address.startswith(_UNIX_SOCKET)


async def carry_out(
    caches: CacheReset,
    settings: GatewaySettings,
    encoder: PromptEncoder,
    message: public.CacheResetWanted,
    is_free: bool,
    send: Callable[[public.CachesReset], object],
) -> None:
    """Answer one call. `is_free`: the client is an operator, or its API key an admin's; others show `gateway.operator_key`.
    Raises: Refusal."""
    if not is_free:
        check_operator(settings.operator_key, message.operator_key)
    done = await caches.forget(await wanted_of(read_body(message.body, CacheResetBody), settings, encoder))
    send(public.CachesReset(call=message.call, pages=done.pages, answers=done.answers))
