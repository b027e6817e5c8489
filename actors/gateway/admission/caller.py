"""Who has sent a request: a digest of the tenant whose API key the call shows, of the client's address where none are asked
for, or of the header that a trusted proxy sets.

A caller whose requests harm workers is the only one that bears the consequences (`dispatch/poison_handling.py`). All clients on
this machine count as one caller, however they connect, and so do all addresses of one IPv6 network (64 bits).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

CALLER_HEADER = b"x-tardigrade-caller"  # hexadecimal, in calls that one gateway forwards to another
_FORWARDED = "tardigrade.forwarded"  # an ASGI extension: the call comes from another gateway
_LOCAL = "local"


def caller_of_call(scope: Scope, headers: Mapping[bytes, bytes], header: str) -> bytes:
    """The caller of an HTTP call. `headers`: by names in lower case. `header`: the name of the one that names the caller; with
    "", or in a call without it, the address does.
    """
    if is_forwarded(scope):
        return bytes.fromhex(headers.get(CALLER_HEADER, b"").decode("ascii"))
    if header and (given := headers.get(header.lower().encode())):
        return caller_of_name(given.decode("latin-1"))
    client = scope.get("client")
    return caller_of_address(client[0] if client else "")


def is_forwarded(scope: Scope) -> bool:
    """True if another gateway has forwarded this call, and has checked who sent it."""
    return _FORWARDED in scope.get("extensions", ())


def caller_of_name(value: str) -> bytes:
    """The caller that a trusted proxy names with this value of its header."""
    return _digest("header " + value)


@lru_cache(maxsize=4096)
def caller_of_tenant(tenant: str) -> bytes:
    """The caller that has shown an API key of this tenant."""
    return _digest("tenant " + tenant)


@lru_cache(maxsize=4096)
def caller_of_address(address: str) -> bytes:
    """The caller at an IP address; any other text means this machine."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return _digest(_LOCAL)
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.is_loopback:
        return _digest(_LOCAL)
    return _digest(str(int(ip) >> 64 if isinstance(ip, IPv6Address) else ip))


def forwarded_app(app: ASGIApp) -> ASGIApp:
    """The same application for calls that other gateways forward: they tell the caller."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["extensions"] = {**scope.get("extensions", {}), _FORWARDED: {}}
        await app(scope, receive, send)

    return call


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()
