"""Which HTTP requests a web page may cause: checks of `Host` and `Origin`, and the headers of CORS. Pure.

A server that listens on 127.0.0.1 can still be reached by every page in a browser on that machine. `Origin` reveals a page of
another origin. `Host` reveals a page whose own name was made to resolve to 127.0.0.1 (DNS rebinding), because it contains that
name. A `Host` that is an address is safe: no name server was asked for it. Clients other than browsers send no `Origin`.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from actors.gateway.requests.refusals import Refusal, json_text
from actors.gateway.settings import GatewaySettings

ANY = "*"
Headers = list[tuple[bytes, bytes]]

# characters of an origin: a scheme, a name of 253 and a port have fewer. The custodian holds it with each response to such a
# page, and takes notes of a bounded size only
MAX_ORIGIN = 512
_LOCAL = "localhost"
_MAX_AGE_S = b"600"
_METHODS = b"GET, POST, PUT, DELETE, OPTIONS"
# Its length stays that of the last release: a gateway goes on with streams which the last release has begun, and computes from
# this how long the heads are that their clients have.
_READABLE = (
    b"X-Request-Id, Retry-After, X-Ignored-Fields, X-Cache, X-Cache-Similarity, X-Queue-Wait-Ms, X-Degraded, X-Fallback-Model,"
    b" Server-Timing, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests,"
    b" x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, traceparent, tracestate"
)


@dataclass(frozen=True)
class BrowserRules:
    """`hosts`: the names that `Host` may have beside addresses and localhost, or "*" for any. `origins`: those whose pages may
    use this server and read its answers, or "*" for all."""

    hosts: frozenset[str] = frozenset((ANY,))
    origins: frozenset[str] = frozenset((ANY,))

    def allowed_origin(self, headers: Headers) -> str:
        """The origin whose pages may read the answer; "" if the request names none, or one that needs no
        permission. `headers`: with names in lower case.

        Raises: Refusal for a host or an origin that is not served.
        """
        host = origin = ""
        for name, value in headers:
            if name == b"host":
                host = value.decode("latin-1").lower()
                self._check_host(host)
            elif name == b"origin":
                origin = value.decode("latin-1").lower()
        if not origin:
            return ""
        if len(origin) > MAX_ORIGIN:
            detail = f"Origin: expected at most {MAX_ORIGIN} characters, got {len(origin)}"
            raise Refusal("origin_not_allowed", detail, field="Origin")
        if ANY in self.origins or origin in self.origins:
            return origin
        if origin.partition("://")[2] == host:
            return ""
        raise _refused("Origin", "that of a page of this server, or one in gateway.allowed_origins", origin)

    def _check_host(self, host: str) -> None:
        if ANY in self.hosts or is_address(name := _without_port(host)):
            return
        if name not in self.hosts and name != _LOCAL and not name.endswith("." + _LOCAL):
            raise _refused("Host", "an address, localhost, or a name in gateway.allowed_hosts", host)


def browser_rules(listener: socket.socket, settings: GatewaySettings) -> BrowserRules:
    """The rules of one listening socket. A private unix socket serves everybody who can reach it. On an address that other
    machines reach, clients use names that the server cannot know, so there any host is served unless the settings name some.
    """
    if listener.family == socket.AF_UNIX:
        return BrowserRules()
    is_local = ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
    hosts = settings.allowed_hosts or ([] if is_local else [ANY])
    return BrowserRules(frozenset(map(str.lower, hosts)), frozenset(map(str.lower, settings.allowed_origins)))


def is_address(host: str) -> bool:
    """True for an IP address as browsers read one: in brackets, or with digits after its last dot."""
    return host.startswith("[") or host.rpartition(".")[2].isdigit()


def granting(origin: str) -> Headers:
    """The headers that let a page of this origin read the answer."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _READABLE),
        (b"vary", b"Origin"),
    ]


def preflight(headers: Headers) -> Headers:
    """The headers, beside those of `granting`, that answer a browser's preflight request: what a page may send."""
    wanted = next((value for name, value in headers if name == b"access-control-request-headers"), b"*")
    return [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", wanted),
        (b"access-control-max-age", _MAX_AGE_S),
    ]


def is_preflight(method: bytes, headers: Headers) -> bool:
    """True if a browser asks what a page may send."""
    return method == b"OPTIONS" and any(name == b"access-control-request-method" for name, _ in headers)


def _without_port(host: str) -> str:
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _refused(header: str, expected: str, got: str) -> Refusal:
    detail = f"{header}: expected {expected}, got {json_text(got)}"
    return Refusal("origin_not_allowed" if header == "Origin" else "host_not_allowed", detail, field=header)
