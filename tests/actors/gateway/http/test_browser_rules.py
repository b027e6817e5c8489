"""Host and Origin: which requests the server refuses so that no foreign web page uses it, and what a page gets that may."""

from __future__ import annotations

import socket

import msgspec
import pytest

from actors.gateway.http.api import ENDPOINTS
from actors.gateway.http.browser_rules import MAX_ORIGIN, BrowserRules, browser_rules, granting, preflight
from actors.gateway.requests.refusals import Refusal
from actors.gateway.settings import GatewaySettings, read_settings
from messages.errors import ConfigError

PAGE = b"https://chat.example.com"
N_GRANTING_BYTES = 419
STRICT = BrowserRules(frozenset(("llm.example.com",)), frozenset((PAGE.decode(),)))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8000", "127.0.0.1", "[::1]:8000", "[::1]", "10.1.2.3", "localhost:8000", "LOCALHOST", "a.localhost:1",
     "llm.example.com", "LLM.example.com:443", "127.1:8000"],
)  # fmt: skip
def test_hosts_that_no_name_server_can_turn_elsewhere_are_served(host: str) -> None:
    assert STRICT.allowed_origin([(b"host", host.encode())]) == ""


@pytest.mark.parametrize(
    "host",
    ["evil.com", "evil.com:8000", "localhost.evil.com", "evillocalhost", "127.0.0.1.evil.com", "", "x", "1.2.3.4.",
     "llm.example.com.a", "evil.com\xe9"],
)  # fmt: skip
def test_other_hosts_are_refused(host: str) -> None:
    with pytest.raises(
        Refusal, match=r"Host: expected an address, localhost, or a name in gateway\.allowed_hosts, got"
    ) as caught:
        STRICT.allowed_origin([(b"host", host.encode("latin-1"))])
    assert (caught.value.status, caught.value.fine_code) == (403, "host_not_allowed")


def test_a_page_may_use_every_method_of_the_api() -> None:
    methods = dict(preflight([]))[b"access-control-allow-methods"].decode().split(", ")
    assert {endpoint.method for endpoint in ENDPOINTS} <= set(methods)


def test_the_head_that_a_page_gets_is_as_long_as_that_of_the_last_release() -> None:
    """A stream that the last release has begun goes on behind its head, whose length is computed from these headers."""
    assert sum(len(name) + len(value) for name, value in granting(PAGE.decode())) == N_GRANTING_BYTES


def test_an_origin_that_no_page_has_is_refused() -> None:
    longest = b"https://" + b"a" * (MAX_ORIGIN - 8)
    assert BrowserRules().allowed_origin([(b"origin", longest)]) == longest.decode()
    with pytest.raises(Refusal, match=r"Origin: expected at most 512 characters, got 513") as caught:
        BrowserRules().allowed_origin([(b"origin", longest + b"a")])
    assert (caught.value.status, caught.value.fine_code) == (403, "origin_not_allowed")


def test_every_host_of_a_request_counts() -> None:
    with pytest.raises(Refusal):
        STRICT.allowed_origin([(b"host", b"localhost"), (b"host", b"evil.com")])


def test_a_client_that_is_no_browser_needs_neither() -> None:
    assert STRICT.allowed_origin([(b"accept", b"*/*")]) == ""


def test_pages_of_this_server_and_of_allowed_origins() -> None:
    assert STRICT.allowed_origin([(b"host", b"localhost:8000"), (b"origin", b"http://localhost:8000")]) == ""
    assert STRICT.allowed_origin([(b"host", b"localhost:8000"), (b"origin", PAGE)]) == PAGE.decode()


@pytest.mark.parametrize(
    "origin", [b"https://evil.com", b"null", b"http://localhost:3000", b"https://chat.example.com.evil.com"]
)
def test_pages_of_other_origins_are_refused(origin: bytes) -> None:
    with pytest.raises(Refusal, match=r"gateway\.allowed_origins") as caught:
        STRICT.allowed_origin([(b"origin", origin), (b"host", b"localhost:8000")])
    assert caught.value.fine_code == "origin_not_allowed"


@pytest.mark.parametrize(
    ("family", "address", "hosts", "is_served"),
    [
        (socket.AF_INET, "127.0.0.1", [], False),
        (socket.AF_INET6, "::1", [], False),
        (socket.AF_INET, "0.0.0.0", [], True),  # names of containers and machines lead here
        (socket.AF_INET, "0.0.0.0", ["llm.example.com"], False),
        (socket.AF_INET, "127.0.0.1", ["*"], True),
    ],
)
def test_an_address_that_others_reach_is_served_under_any_name(
    family: int, address: str, hosts: list[str], is_served: bool
) -> None:
    with socket.socket(family) as listener:
        try:
            listener.bind((address, 0))
        except OSError:
            pytest.skip("this machine has no such address")
        rules = browser_rules(listener, GatewaySettings(allowed_hosts=hosts))
    if is_served:
        assert rules.allowed_origin([(b"host", b"tardigrade:8000")]) == ""
    else:
        with pytest.raises(Refusal):
            rules.allowed_origin([(b"host", b"tardigrade:8000")])


@pytest.mark.parametrize(
    "settings", [{"allowed_origins": ["chat.example.com"]}, {"allowed_origins": ["https://a/b"]}, {"allowed_hosts": ["a:80"]}]
)
def test_settings_that_could_never_match_are_refused(settings: dict) -> None:
    with pytest.raises(ConfigError):
        read_settings(msgspec.json.encode(settings))
