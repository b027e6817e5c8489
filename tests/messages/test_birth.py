"""What a child reads on its standard input, and how a broken one is refused."""

from __future__ import annotations

import json

import msgspec
import pytest

from messages.birth import LISTEN_SOCKET, Birth, read_birth
from messages.errors import ConfigError

BIRTH = Birth(
    name="gateway/0",
    incarnation=3,
    endpoint="ipc:///r/gateway-0.3",
    supervisor_endpoint="ipc:///r/supervisor",
    supervisor_incarnation=1,
    run_dir="/r",
    log_format="json",
    log_level="info",
    settings=msgspec.Raw(b'{"a":1}'),
    descriptors={LISTEN_SOCKET: 9, "memory": 11},
)


def changed(**fields: object) -> bytes:
    """The birth above as JSON, with these fields replaced."""
    return json.dumps({**json.loads(msgspec.json.encode(BIRTH)), **fields}).encode()


def test_it_arrives_as_it_was_sent() -> None:
    assert read_birth(msgspec.json.encode(BIRTH)) == BIRTH


def test_a_child_without_descriptors_has_an_empty_table() -> None:
    assert read_birth(msgspec.json.encode(msgspec.structs.replace(BIRTH, descriptors={}))).descriptors == {}


@pytest.mark.parametrize(
    ("fields", "culprit"),
    [
        ({"descriptors": {"listen": "nine"}}, r"descriptors"),
        ({"descriptors": [9]}, r"descriptors"),
        ({"incarnation": "three"}, r"incarnation"),
    ],
)
def test_a_refusal_names_the_field(fields: dict[str, object], culprit: str) -> None:
    with pytest.raises(ConfigError, match=culprit):
        read_birth(changed(**fields))
