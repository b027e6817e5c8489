"""What a child reads on its standard input, and how a broken one is refused."""

from __future__ import annotations

import json

import msgspec
import pytest

from messages.errors import ConfigError
from messages.lifecycle.spawn_spec import LISTEN_SOCKET, SpawnSpec, read_spawn_spec

SPAWN_SPEC = SpawnSpec(
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
    """The spawn spec above as JSON, with these fields replaced."""
    return json.dumps({**json.loads(msgspec.json.encode(SPAWN_SPEC)), **fields}).encode()


def test_it_arrives_as_it_was_sent() -> None:
    assert read_spawn_spec(msgspec.json.encode(SPAWN_SPEC)) == SPAWN_SPEC


def test_a_child_without_descriptors_has_an_empty_table() -> None:
    assert read_spawn_spec(msgspec.json.encode(msgspec.structs.replace(SPAWN_SPEC, descriptors={}))).descriptors == {}


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
        read_spawn_spec(changed(**fields))
