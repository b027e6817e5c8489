"""Sizes and times with a unit in the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from messages.errors import ConfigError
from supervisor.config.config_file import table_of
from supervisor.config.server_config import load_config
from supervisor.config.units import without_units


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("64", 64),
        ("64 B", 64),
        ("2K", 2048),
        ("512MiB", 512 << 20),
        ("1.5GB", 1_500_000_000),
        ("1g", 1 << 30),
        ("2tib", 2 << 40),
    ],
)
def test_a_size_with_a_unit_is_a_number_of_bytes(text: str, n_bytes: int) -> None:
    assert without_units({"worker": {"kv_memory_bytes": text}}) == {"worker": {"kv_memory_bytes": n_bytes}}


def test_texts_and_numbers_that_are_no_sizes_stay() -> None:
    variables = {"length_s": "5s", "size_bytes": "1KiB"}  # of a template, whose values are its own
    table: dict[str, Any] = {
        "model": "1GiB",
        "gateway": {"max_body_bytes": 7, "answer_cache_bytes": "1 gig", "orphan_s": "1 hour"},
    }
    table["gateway"]["chat_template_kwargs"] = variables
    assert without_units(table) == table


def test_flags_and_files_take_sizes() -> None:
    assert load_config(None, [table_of("worker.kv_memory_bytes=2GiB")]).worker.kv_memory_bytes == 2 << 30
    with pytest.raises(ConfigError) as refused:
        load_config(None, [table_of("worker.kv_memory_bytes=2 gig")])
    expected = 'expected a whole number, or a size such as "512MiB" or "1.5GB", got \'2 gig\''
    assert str(refused.value) == f"worker.kv_memory_bytes: {expected}"


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("2m", 120), ("1.5 min", 90), ("1h", 3600), ("1d", 86_400), ("250ms", 0.25)]
)
def test_a_time_with_a_unit_is_a_number_of_seconds(text: str, seconds: float) -> None:
    assert without_units({"gateway": {"orphan_s": text}}) == {"gateway": {"orphan_s": seconds}}


def test_flags_and_files_take_times() -> None:
    config = load_config(None, [table_of("supervisor.drain_s=2min"), table_of("gateway.keep_alive_s=1m")])
    assert (config.supervisor.drain_s, config.gateway.keep_alive_s) == (120.0, 60)
    with pytest.raises(ConfigError) as refused:
        load_config(None, [table_of("supervisor.drain_s=2 minutes")])
    assert str(refused.value) == 'supervisor.drain_s: expected a number, or a time such as "90s" or "2min", got \'2 minutes\''
