"""Sizes with a unit in the configuration."""

from __future__ import annotations

import pytest

from messages.errors import ConfigError
from supervisor.config.byte_sizes import with_sizes_as_bytes
from supervisor.config.config_file import table_of
from supervisor.config.server_config import load_config


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
    assert with_sizes_as_bytes({"worker": {"kv_memory_bytes": text}}) == {"worker": {"kv_memory_bytes": n_bytes}}


def test_texts_and_numbers_that_are_no_sizes_stay() -> None:
    table = {"model": "1GiB", "gateway": {"max_body_bytes": 7, "answer_cache_bytes": "1 gig"}}
    assert with_sizes_as_bytes(table) == table


def test_flags_and_files_take_sizes() -> None:
    assert load_config(None, [table_of("worker.kv_memory_bytes=2GiB")]).worker.kv_memory_bytes == 2 << 30
    with pytest.raises(ConfigError) as refused:
        load_config(None, [table_of("worker.kv_memory_bytes=2 gig")])
    expected = 'expected a whole number, or a size such as "512MiB" or "1.5GB", got \'2 gig\''
    assert str(refused.value) == f"worker.kv_memory_bytes: {expected}"
