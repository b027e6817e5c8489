"""A server with a decoder as its embedding model: texts with a prompt against `transformers`, before and after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tests.support.embedding.tiny_decoders import END, write_decoder, write_sentence_files
from tests.support.real_server import real_server

pytestmark = pytest.mark.slow

TEXTS = ["the tardigrade survives", "server", "water bear " * 20]
PROMPTS = {"prompts": {"query": "query the ", "document": ""}, "default_prompt_name": "document"}


def ask(url: str, **fields: Any) -> np.ndarray:
    """The vectors of TEXTS."""
    answer = httpx.post(f"{url}/v1/embeddings", json={"input": TEXTS, **fields}, timeout=60.0)
    assert answer.status_code == 200, answer.text
    return np.asarray([one["embedding"] for one in answer.json()["data"]], np.float32)


def expected_of(reference: Any, folder: Path, prompt: str) -> np.ndarray:
    """The last states of TEXTS behind a prompt, with length 1."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [tokenizer.encode(prompt + text).ids for text in TEXTS]
    assert all(one[-1] == END for one in ids)
    with torch.no_grad():
        states = [reference(torch.tensor([one])).last_hidden_state[0, -1] for one in ids]
    return torch.nn.functional.normalize(torch.stack(states), dim=1).numpy()


def test_vectors_of_a_decoder_over_http(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-embedding"
    folder.mkdir()
    reference = write_decoder(folder)
    write_sentence_files(folder, {"pooling_mode_lasttoken": True}, ("Transformer", "Pooling", "Normalize"), PROMPTS, longest=60)
    flags = ("--model", "hash-chain", "--embedding-model", str(folder), "--state-dir", str(tmp_path / "state"))
    with real_server(*flags) as server:
        documents, queries = expected_of(reference, folder, ""), expected_of(reference, folder, "query the ")
        assert np.abs(ask(server.url, model="tiny-embedding") - documents).max() < 1e-5
        assert np.abs(ask(server.url, prompt_name="query") - queries).max() < 1e-5
        server.kill("embedder/0")
        assert np.abs(ask(server.url) - documents).max() < 1e-5, "the next incarnation answers"
        short = queries[:, :8] / np.linalg.norm(queries[:, :8], axis=1, keepdims=True)
        assert np.abs(ask(server.url, prompt_name="query", dimensions=8) - short).max() < 1e-5
