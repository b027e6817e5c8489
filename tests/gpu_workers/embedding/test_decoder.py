"""Decoders as embedding models against `transformers`: last and mean hidden states, alone and together, short and long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from gpu_workers.embedding.encoder import load_encoder
from gpu_workers.embedding.model_files import open_model
from gpu_workers.embedding.settings import EmbedderSettings
from gpu_workers.model_store.weight_files import WeightsError
from tests.support.embedding.tiny_decoders import DECODERS, LONGEST, VOCABULARY, WINDOW, write_decoder, write_sentence_files

pytestmark = pytest.mark.slow

LENGTHS = (9, 3, WINDOW + 1, 3, LONGEST, 1, 16, 17, 1, 9)


def texts_of(lengths: tuple[int, ...] = LENGTHS, vocabulary: int = VOCABULARY) -> list[np.ndarray]:
    chance = np.random.default_rng(7)
    return [chance.integers(0, vocabulary, n).astype(np.int32) for n in lengths]


def states_of(reference: Any, texts: list[np.ndarray]) -> list[torch.Tensor]:
    """The hidden states of each text alone: [n, hidden]."""
    with torch.no_grad():
        return [reference(torch.from_numpy(ids[None].astype(np.int64))).last_hidden_state[0] for ids in texts]


@pytest.mark.parametrize("with_head", [False, True])
@pytest.mark.parametrize("kind", DECODERS)
def test_vectors_are_those_of_transformers(kind: str, with_head: bool, tmp_path: Path) -> None:
    states = states_of(write_decoder(tmp_path, kind, with_head=with_head), texts_of())
    last = load_encoder(tmp_path).embed(texts_of())
    mean = load_encoder(tmp_path, EmbedderSettings(pooling="mean")).embed(texts_of())
    first = load_encoder(tmp_path, EmbedderSettings(pooling="first")).embed(texts_of())
    for found, expected in ((last, [one[-1] for one in states]), (mean, [one.mean(0) for one in states])):
        assert np.abs(found - normalize(torch.stack(expected), dim=1).numpy()).max() < 1e-5
    assert np.abs(first - normalize(torch.stack([one[0] for one in states]), dim=1).numpy()).max() < 1e-5


@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text"])
def test_a_vector_does_not_depend_on_the_batch(kind: str, tmp_path: Path) -> None:
    write_decoder(tmp_path, kind)
    encoder = load_encoder(tmp_path)
    together = encoder.embed(texts_of())
    alone = np.concatenate([encoder.embed([ids]) for ids in texts_of()])
    in_small_batches = load_encoder(tmp_path, EmbedderSettings(batch_tokens=20)).embed(texts_of())
    assert np.abs(together - alone).max() < 1e-6
    assert np.abs(together - in_small_batches).max() < 1e-6
    assert np.abs(np.linalg.norm(together, axis=1) - 1).max() < 1e-6


def test_each_batch_may_be_larger_than_the_one_before(tmp_path: Path) -> None:
    write_decoder(tmp_path)
    encoder, texts = load_encoder(tmp_path), texts_of((8,) * 5)
    growing = [encoder.embed(texts[:n]) for n in (1, 2, 3, 5, 4)]
    for found in growing:
        assert np.abs(found - growing[3][: len(found)]).max() < 1e-6


def test_files_decide_how_vectors_are_made(tmp_path: Path) -> None:
    states = states_of(write_decoder(tmp_path), texts_of())
    write_sentence_files(tmp_path, {"pooling_mode_mean_tokens": True}, ("Transformer", "Pooling"))
    expected = torch.stack([one.mean(0) for one in states]).numpy()
    assert np.abs(load_encoder(tmp_path).embed(texts_of()) - expected).max() < 1e-5


def test_sixteen_bits_are_near(tmp_path: Path) -> None:
    states = states_of(write_decoder(tmp_path), texts_of())
    expected = normalize(torch.stack([one[-1] for one in states]), dim=1).numpy()
    found = load_encoder(tmp_path, EmbedderSettings(decoder_dtype="bfloat16")).embed(texts_of())
    assert (found * expected).sum(1).min() > 0.99


def test_the_packaged_decoder_is_that_of_transformers() -> None:
    """SmolLM2 from its GGUF file. Some of its hidden states are thousands of times larger than others, so that rounding
    shows more than in the tiny ones."""
    transformers = pytest.importorskip("transformers")
    folder = open_model("smollm2").folder
    reference = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    texts = texts_of((40, 5, 1, 300, 5, 40), 40_000)
    expected = normalize(torch.stack([one[-1] for one in states_of(reference, texts)]), dim=1).numpy()
    assert np.abs(load_encoder(folder).embed(texts) - expected).max() < 1e-4


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    write_decoder(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"missing model\.layers\.1\.mlp\.up_proj\.weight"):
        load_encoder(tmp_path)
