"""The packaged MiniLM against `transformers`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gpu_workers.embedding.encoder import Encoder, load_encoder
from gpu_workers.embedding.settings import EmbedderSettings
from gpu_workers.model_store.weight_files import WeightsError
from tests.support.embedding.embedders import packaged_folder, write_bert_files

pytestmark = pytest.mark.slow

LENGTHS = (9, 3, 64, 3, 256, 1, 9)


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    return load_encoder(packaged_folder())


@pytest.fixture(scope="module")
def texts() -> list[np.ndarray]:
    chance = np.random.default_rng(7)
    return [chance.integers(1000, 30_000, n).astype(np.int32) for n in LENGTHS]


def test_vectors_are_those_of_transformers(minilm: Encoder, texts: list[np.ndarray]) -> None:
    from transformers import BertModel

    model = BertModel.from_pretrained(packaged_folder(), dtype=torch.float32, add_pooling_layer=False).eval()
    with torch.no_grad():
        means = [model(torch.tensor(ids[None].astype(np.int64))).last_hidden_state[0].mean(0) for ids in texts]
    expected = torch.nn.functional.normalize(torch.stack(means), dim=1).numpy()
    assert np.abs(minilm.embed(texts) - expected).max() < 1e-5


def test_a_vector_does_not_depend_on_the_batch(minilm: Encoder, texts: list[np.ndarray]) -> None:
    together = minilm.embed(texts)
    alone = np.concatenate([minilm.embed([ids]) for ids in texts])
    assert np.abs(together - alone).max() < 1e-6
    assert np.abs(np.linalg.norm(together, axis=1) - 1).max() < 1e-6
    assert together.shape == (len(texts), 384)


def test_long_texts_are_computed_in_several_batches(minilm: Encoder, texts: list[np.ndarray]) -> None:
    small = load_encoder(packaged_folder(), EmbedderSettings(batch_tokens=16))
    assert np.abs(small.embed(texts) - minilm.embed(texts)).max() < 1e-6


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    write_bert_files(tmp_path)
    save_file({"bert.embeddings.word_embeddings.weight": torch.zeros(8, 4)}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="expected the tensor embeddings"):
        load_encoder(tmp_path)
