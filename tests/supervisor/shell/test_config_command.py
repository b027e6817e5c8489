"""The sample configuration, and what a file or a server has."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from supervisor.config.config_file import convert
from supervisor.config.origins import Setting, settings_of
from supervisor.config.sample import sample_text
from supervisor.config.server_config import ServerConfig, described, load_config
from tests.support.supervisor.command_line import call, serving


def test_the_sample_changes_nothing_as_it_is_nor_with_all_of_its_keys(tmp_path: Path) -> None:
    text = sample_text()
    file = tmp_path / "server.toml"
    file.write_text(text)
    assert load_config(str(file)) == ServerConfig()
    keys = text.partition("# [tenants.default]")[0]
    active = re.sub(r"^# (\w+ = )(?! *# not set)", r"\1", keys, flags=re.MULTILINE)
    table = tomllib.loads(active)
    assert convert(table, ServerConfig) == ServerConfig()
    unset = set(re.findall(r"^# (\w+) = +# not set", text, flags=re.MULTILINE))
    assert set(table) | unset | {"tenants"} >= set(described(ServerConfig()))
    tenants = re.sub(r"^# (\[|\w+ = )(?! *# not set)", r"\1", text[len(keys) :], flags=re.MULTILINE)
    assert tomllib.loads(tenants)["tenants"]["default"]["weight"] == 1.0


def test_every_key_of_the_sample_is_explained() -> None:
    lines = sample_text().splitlines()
    bare = [line for above, line in itertools.pairwise(lines) if re.match(r"# \w+ =", line) and not above.startswith("#")]
    assert bare == []


def test_the_last_source_that_names_a_key_is_its_origin() -> None:
    sources = [("file f", {"port": 1, "worker": {"dtype": "auto", "n_slots": 3}}), ("--set", {"worker": {"n_slots": 4}})]
    whole = {"port": 1, "host": "h", "worker": {"dtype": "auto", "n_slots": 4}, "tenants": {}}
    assert settings_of(whole, sources) == [
        Setting("port", 1, "file f"),
        Setting("host", "h", "default"),
        Setting("worker.dtype", "auto", "file f"),
        Setting("worker.n_slots", 4, "--set"),
        Setting("tenants", {}, "default"),
    ]


def test_an_empty_section_is_the_origin_of_none_of_its_keys() -> None:
    """The sample has all sections, with every key in them behind a comment sign."""
    said = settings_of({"port": 1, "worker": {"n_slots": 4}}, [("file f", {"port": 1, "worker": {}})])
    assert [one.origin for one in said] == ["file f", "default"]


@pytest.mark.slow
def test_show_of_a_file_says_what_differs_and_from_where(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('port = 8100\n[worker]\nhost_cache_bytes = "1GiB"\n')
    said = call("config", "show", "--config", str(file), "--set", "scheduler.policy=fair", "--origin").stdout
    assert f"port = 8100  # file {file}" in said
    assert f"host_cache_bytes = {1 << 30}  # file {file}" in said
    assert 'policy = "fair"  # --set' in said
    assert "log_level" not in said
    whole = call("config", "show", "--config", str(file), "--effective")
    assert load_config(str(_written(tmp_path, whole.stdout))) == load_config(str(file))
    assert call("config", "show", "--set", "prot=1").returncode == 2


def _written(folder: Path, text: str) -> Path:
    file = folder / "shown.toml"
    file.write_text(text)
    return file


@pytest.mark.slow
def test_show_of_a_running_server(tmp_path: Path) -> None:
    with serving(tmp_path / "d", "--set", "scheduler.policy=fair") as server:
        shown = json.loads(call("config", "show", "--json", "--run-dir", str(server.run_dir)).stdout)
    by_key = {one["key"]: (one["value"], one["origin"]) for one in shown}
    assert by_key["scheduler.policy"] == ("fair", "--set")
    assert by_key["model"] == ("hash-chain", "flag")
    assert call("config", "show", "--run-dir", str(tmp_path / "none")).returncode == 6
    assert msgspec.json.encode(shown)
