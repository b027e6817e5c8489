"""Keyword arguments as flags of `supervisor start`, and that the supervisor reads from them what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages.errors import ConfigError
from messages.local.start_flags import in_keywords, start_flags
from supervisor.config.config_file import table_of


def test_each_kind_of_value_has_its_flag() -> None:
    options = {
        "max_length": 2048,
        "speculation": False,
        "vault": True,
        "tp": None,
        "model": Path("/m"),
        "set": {"worker.threads": 2},
    }
    assert start_flags(options) == [
        "--max-length", "2048", "--no-speculation", "--vault", "--model", "/m", "--set", "worker.threads=2",
    ]  # fmt: skip


@given(st.one_of(st.text(), st.integers(-9, 9), st.booleans(), st.lists(st.text()), st.dictionaries(st.text(), st.text())))
def test_a_key_of_the_configuration_is_read_as_it_was_given(value: object) -> None:
    (_, assignment) = start_flags({"set": {"gateway.key": value}})
    assert table_of(assignment) == {"gateway": {"key": value}}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"set": ["a=b"]}, "set: expected a dict of keys of the configuration, got"),
        ({"set": {"a.b": object()}}, "set: a.b: expected a text, a number, a bool, a list or a dict, got"),
        ({"gpus": [1]}, "gpus: expected a text, a number or a bool, got"),
    ],
)
def test_a_value_that_no_flag_can_have_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        start_flags(options)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("No such option '--max-len'. Did you mean '--max-length'?", "No such option 'max_len'. Did you mean 'max_length'?"),
        ("--enforce-eager: unknown; here it is --set worker.cuda_graphs=false",
         'enforce_eager: unknown; here it is set={"worker.cuda_graphs": False}'),
        ("--swap-space: unknown; here it is --host-cache BYTES", "swap_space: unknown; here it is host_cache BYTES"),
        ("--api-key: unknown; here it is --api-keys; `supervisor keys add` makes a key",
         "--api-key: unknown; here it is --api-keys; `supervisor keys add` makes a key"),
        ("worker.thread: unknown key", "worker.thread: unknown key"),
    ],
)  # fmt: skip
def test_what_the_server_says_of_flags_is_told_in_keywords(said: str, shown: str) -> None:
    assert in_keywords(said) == shown
