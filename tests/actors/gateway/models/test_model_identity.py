"""The identity of the model that a gateway serves, whose files may change while its server runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.gateway.models.model_identity import identify_model, known_identity, served_identity
from messages.errors import ConfigError
from messages.lifecycle.model_digests import read_digests


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes(name.encode() * 400)
    known_identity.cache_clear()
    return tmp_path


def test_requests_go_on_while_workers_have_the_weights_of_the_start(folder: Path) -> None:
    at_start, before = read_digests(str(folder)), identify_model(str(folder))
    (folder / "model.safetensors").write_bytes(b"other")
    assert served_identity(str(folder), at_start) == before
    known_identity.cache_clear()
    assert served_identity(str(folder), read_digests(str(folder))) != before, "a new start serves the other weights"


def test_no_gateway_serves_with_another_tokenizer(folder: Path) -> None:
    at_start = read_digests(str(folder))
    (folder / "tokenizer.json").write_bytes(b"other")
    with pytest.raises(ConfigError, match="tokenizer"):
        served_identity(str(folder), at_start)
