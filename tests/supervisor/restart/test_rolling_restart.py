"""A rolling restart over real processes of stub actors: the order, what is put back, where it stops."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import msgspec
import pytest
import structlog.testing

from messages.errors import ConfigError
from messages.lifecycle.spawn_spec import CUSTODIAN_SOCKET, LISTEN_SOCKET
from supervisor.config.server_config import ServerConfig, load_config
from supervisor.directories.server import Server, StartInputs, as_json, decode_server, half_restarted
from supervisor.policy.child_spec import Group
from supervisor.policy.roll import Roll, order_of_groups
from supervisor.restart.reload import reloaded
from supervisor.restart.rolling import RollingRestart
from supervisor.start_facts import StartFacts
from supervisor.tree import build_tree
from tests.support.supervisor.start_facts import FACTS
from tests.support.supervisor.supervisor_rig import DEADLINE_S, SupervisorRig, playing


def test_a_standby_gang_is_replaced_just_before_its_active_gang() -> None:
    titles = ["directory", "gang 0", "gang 1", "standby gang 0", "standby gang 1", "scheduler/0"]
    active = {"standby gang 0": "gang 0", "gang 1": "standby gang 1"}  # the second pair has swapped
    expected = ["directory", "standby gang 0", "gang 0", "gang 1", "standby gang 1", "scheduler/0"]
    assert order_of_groups(titles, active) == expected
    assert order_of_groups(titles[:2], {}) == titles[:2]


def test_a_roll_says_how_far_it_is() -> None:
    roll = Roll()
    assert (roll.progress(), roll.is_open) == (None, False)
    roll = roll.begin(["a", "b"])
    assert (roll.number, roll.todo, roll.is_open) == (1, ("supervisor", "a", "b"), True)
    roll = roll.replaced().replaced()
    stopped = roll.failed("why")
    assert (stopped.done, stopped.todo, stopped.is_open) == (("supervisor", "a"), ("b",), False)
    assert not roll.replaced().is_open
    assert stopped.begin(["a"]).number == 2
    assert msgspec.json.decode(msgspec.json.encode(stopped), type=Roll) == stopped


async def rolled(rig: SupervisorRig, server: Server, *target: Group) -> RollingRestart:
    """A rolling restart of the rig's tree to these groups, run to its end."""
    rolling = rig.supervisor._rolling
    rolling._target = replace(server, groups=target)
    rolling.roll = Roll().begin(group.title for group in target).replaced()
    await rolling.run()
    return rolling


async def test_every_group_is_replaced_in_order_and_without_a_count_against_its_budget(open_rig) -> None:
    names = ("cache_directory/0", "gateway/0")
    async with open_rig(*(playing("good", name) for name in names)) as rig:
        await rig.until_serving()
        target = [playing("busy", name) for name in names]
        rolling = await rolled(rig, rig.supervisor._server, *target)
        assert (rolling.roll.done, rolling.roll.failure) == (("supervisor", *names), "")
        report = rig.supervisor.report(False)
        assert report.state == "serving"
        assert [(child.incarnation, child.restarts_left) for child in report.children] == [(2, 3), (2, 3)]
        assert "cause cache_directory/0 1 ended" in rig.diary("gateway/0")
        assert [rig.record(name).spec for name in names] == [group.children[0] for group in target]


async def test_what_an_earlier_supervisor_has_not_replaced_is_replaced(open_rig) -> None:
    names = ("cache_directory/0", "speculation/0", "gateway/0")
    async with open_rig(*(playing("good", name) for name in names)) as rig:
        await rig.until_serving()
        rolling = rig.supervisor._rolling
        rolling._target = replace(rig.supervisor._server, groups=tuple(playing("busy", name) for name in names))
        rolling.roll = Roll(1, ("supervisor", names[0]), names[1:])
        await rolling.run()
        assert [rig.record(name).incarnation for name in names] == [1, 2, 2]


async def test_a_reload_beside_a_restart_is_refused_and_told_why(open_rig) -> None:
    async with open_rig(playing("good", "cache_directory/0")) as rig:
        await rig.until_serving()
        rig.supervisor._rolling.roll = Roll().begin(["cache_directory/0"])
        refusal = rig.supervisor._replace_groups(rig.supervisor._server, ["cache_directory/0"])
        assert refusal.endswith("got one that is being restarted")


@pytest.mark.parametrize("behaviour", ["fails", "unusable"])
async def test_it_stops_at_the_first_child_that_does_not_become_ready(open_rig, behaviour: str) -> None:
    async with open_rig(*(playing("good", name) for name in ("cache_directory/0", "speculation/0", "gateway/0"))) as rig:
        await rig.until_serving()
        target = playing("busy", "cache_directory/0"), playing(behaviour, "speculation/0"), playing("busy", "gateway/0")
        rolling = await rolled(rig, rig.supervisor._server, *target)
        assert rolling.roll.failure.startswith("speculation/0: its new process did not become ready")
        assert rolling.roll.todo == ("speculation/0", "gateway/0")
        await rig.until_serving()  # with its old settings
        assert rig.record("gateway/0").incarnation == 1
        saved = decode_server(rig.supervisor._server.run_dir, (rig.run_dir / "server.json").read_bytes())
        assert [group.children[0].settings for group in saved.groups] == [
            b'{"behaviour":"busy"}',
            b'{"behaviour":"good"}',
            b'{"behaviour":"good"}',
        ]


def refuses(rig: SupervisorRig) -> bool:
    """True if the gateway has told that its journal cannot be written."""
    record = rig.record("gateway/0")
    return record.last is not None and "journal_refuses" in record.last.statistics


async def until_told(rig: SupervisorRig) -> None:
    """Wait for a beat of the gateway that tells of its journal."""
    async with asyncio.timeout(DEADLINE_S):
        while not refuses(rig):
            await asyncio.sleep(0.01)


async def test_no_restart_begins_while_a_journal_cannot_be_written(open_rig) -> None:
    async with open_rig(playing("good", "cache_directory/0"), playing("full", "gateway/0")) as rig:
        await rig.until_serving()
        await until_told(rig)
        refusal = rig.supervisor._rolling.begin(b"", {})
        assert refusal.startswith("expected journals that can be written, got a disk that refuses writes of gateway/0")
        assert not rig.supervisor._rolling.roll.is_open


async def test_a_gateway_whose_disk_is_full_is_replaced_when_it_has_room(open_rig) -> None:
    async with open_rig(playing("full", "gateway/0"), playing("good", "speculation/0")) as rig:
        await rig.until_serving()
        await until_told(rig)
        with structlog.testing.capture_logs() as logs:
            target = playing("busy", "gateway/0"), playing("busy", "speculation/0")
            rolling = asyncio.create_task(rolled(rig, rig.supervisor._server, *target))
            async with asyncio.timeout(DEADLINE_S):
                while "rolling restart waits for room on the disk" not in [line["event"] for line in logs]:
                    await asyncio.sleep(0.01)
            process = rig.record("gateway/0").process
            assert process is not None
            assert (rig.record("gateway/0").incarnation, rig.record("speculation/0").incarnation) == (1, 1)
            os.kill(process.pid, signal.SIGUSR1)
            assert (await rolling).roll.failure == ""
        assert (rig.record("gateway/0").incarnation, rig.record("speculation/0").incarnation) == (2, 2)


async def test_a_gateway_whose_disk_stays_full_is_not_replaced(open_rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.restart.rolling._WRITTEN_S", 0.1)
    async with open_rig(playing("full", "gateway/0"), playing("good", "speculation/0")) as rig:
        await rig.until_serving()
        await until_told(rig)
        rolling = await rolled(rig, rig.supervisor._server, playing("busy", "gateway/0"), playing("busy", "speculation/0"))
        assert rolling.roll.failure.startswith("gateway/0: expected journals that can be written")
        assert (rig.record("gateway/0").incarnation, rig.record("speculation/0").incarnation) == (1, 1)


async def test_a_child_that_does_not_hand_over_is_killed(open_rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.restart.rolling._HAND_OVER_S", 0.1)
    async with open_rig(playing("deaf", "gateway/0")) as rig:
        await rig.until_serving()
        rolling = await rolled(rig, rig.supervisor._server, playing("good", "gateway/0"))
        assert (rolling.roll.todo, rolling.roll.failure) == ((), "")
        assert "did not hand over in time" in rig.record("gateway/0").last_exit


# -- settings ----------------------------------------------------------------------------------------------------------


def server_with(*flags: dict) -> Server:
    """A server as `supervisor start` determines it."""
    config = load_config(None, flags)
    origin = StartInputs({}, as_json(config), FACTS.to_builtins())
    groups = build_tree(config, FACTS)
    return Server(groups, None, config.supervisor, "", "", "json", "info", origin=origin)  # type: ignore[arg-type]


def test_settings_of_the_sections_change() -> None:
    server = server_with()
    config = load_config(None, [{"gateway": {"retention_s": 7.0}, "max_length": 99, "supervisor": {"drain_s": 3.0}}])
    new = reloaded(server, config, {"config": None})
    assert new.settings.drain_s == 3.0
    gateway = next(group for group in new.groups if group.title == "gateway/0")
    assert msgspec.json.decode(gateway.children[0].settings)["retention_s"] == 7.0
    assert new.origin is not None
    assert new.origin.facts == FACTS.to_builtins()
    assert [g.children for g in half_restarted(server.groups, new.groups)] == [g.children for g in server.groups]
    assert decode_server(None, new.encoded()) == new  # type: ignore[arg-type]


def test_descriptors_keep_the_numbers_that_they_have_in_the_present_supervisor() -> None:
    server = server_with()
    numbers = {name: 40 + number for number, name in enumerate((LISTEN_SOCKET, CUSTODIAN_SOCKET))}
    later = replace(server, groups=decode_server(None, server.encoded(), numbers).groups)  # type: ignore[arg-type]
    assert later.groups != server.groups
    assert reloaded(later, load_config(None), {}).groups == later.groups


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"port": 9000}, "port"),
        ({"gateways": 2}, "gateways"),
        ({"standby": True}, "standby"),
        ({"model": "other"}, "model"),
        ({"worker": {"dtype": "float32"}}, "worker.dtype"),
        ({"worker": {"kv_dtype": "int8"}}, "worker.kv_dtype"),
        ({"worker": {"quantization": "int8"}}, "worker.quantization"),
        ({"speculate": False}, "speculate"),
    ],
)
def test_a_key_that_cannot_change_is_named(table: dict, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key}: expected .*, with which the server runs, got "):
        reloaded(server_with(), load_config(None, [table]), {})


def test_a_server_of_the_last_release_with_api_keys_goes_on_without_accounts() -> None:
    of_now = server_with({"api_keys": True})
    old = replace(of_now, groups=tuple(group for group in of_now.groups if group.title != "accounts/0"))
    assert len(old.groups) == len(of_now.groups) - 1
    assert [group.title for group in reloaded(old, load_config(None, [{"api_keys": True}]), {}).groups] == [
        group.title for group in old.groups
    ]
    limited = load_config(None, [{"api_keys": True, "tenants": {"acme": {"tokens_per_day": 9}}}])
    with pytest.raises(ConfigError, match=r"^tenants: expected none with limits"):
        reloaded(old, limited, {})
    assert reloaded(of_now, limited, {}).groups != of_now.groups


def test_facts_survive_as_json() -> None:
    assert StartFacts.from_builtins(msgspec.json.decode(msgspec.json.encode(FACTS.to_builtins()))) == FACTS
    assert ServerConfig() == load_config(None)
