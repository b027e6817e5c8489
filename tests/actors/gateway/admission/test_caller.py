"""Who a caller is: all addresses of one machine or one IPv6 network are one; a header only where a setting says so."""

from __future__ import annotations

from typing import Any

import pytest

from actors.gateway.admission.caller import CALLER_HEADER, caller_of_address, caller_of_call, forwarded_app


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("127.0.0.1", "::1"),
        ("127.0.0.1", ""),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("127.0.0.1", "localhost:0:0:1234"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("2001:db8::1", "2001:db8::2"),
        ("fe80::1%eth0", "fe80::2"),
    ],
)
def test_one_caller_by_several_addresses(one: str, other: str) -> None:
    assert caller_of_address(one) == caller_of_address(other)


def test_other_machines_and_networks_are_other_callers() -> None:
    addresses = ("127.0.0.1", "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8:0:1::1")
    assert len({caller_of_address(address) for address in addresses}) == len(addresses)


def test_a_header_names_the_caller_only_where_a_setting_says_so() -> None:
    scope = {"type": "http", "client": ("10.0.0.1", 5)}
    keys = [{b"authorization": b"Bearer secret-one"}, {b"authorization": b"Bearer secret-two"}, {CALLER_HEADER: b"00"}]
    assert {caller_of_call(scope, headers, "") for headers in keys} == {caller_of_address("10.0.0.1")}
    one, two, none = (caller_of_call(scope, headers, "Authorization") for headers in keys)
    assert len({one, two, none}) == 3
    assert none == caller_of_address("10.0.0.1")
    assert len(one) == 8, "a short digest, from which nobody reads the key"


async def test_only_another_gateway_may_tell_the_caller() -> None:
    callers: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        callers.append(caller_of_call(scope, {CALLER_HEADER: b"0102030405060708"}, ""))

    scope: Any = {"type": "http", "client": None}
    nothing: Any = None
    await app(scope, nothing, nothing)
    await forwarded_app(app)(scope, nothing, nothing)
    assert callers == [caller_of_address(""), bytes(range(1, 9))]
