"""The tokenizer of the embedding model, as a gateway loads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.gateway.embeddings.embeddings import load_embedding_text
from actors.gateway.settings import GatewaySettings
from messages.lifecycle.model_digests import read_digests
from tests.support.embedding.embedders import packaged_folder


def test_a_tokenizer_that_is_not_that_of_the_start_embeds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (packaged_folder() / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text)
    settings = GatewaySettings(
        embedding_model="minilm",
        embedding_folder=str(tmp_path),
        embedding_length=16,
        embedding_digests=read_digests(str(tmp_path)),
    )
    (tmp_path / "added.safetensors").write_bytes(b"not loaded")
    assert load_embedding_text(settings) is not None
    (tmp_path / "tokenizer.json").write_text(text + " ")
    assert load_embedding_text(settings) is None
    assert "expected the tokenizer with which this server was started" in capsys.readouterr().out
