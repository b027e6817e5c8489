"""The packaged MiniLM against `transformers`, and what does not fit is said by its name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gpu_workers.embedding.encoder import Encoder, load_encoder
from gpu_workers.embedding.model_files import Pooling, open_model, read_model
from gpu_workers.model_store.weight_files import WeightsError
from messages.errors import ConfigError
from tests.support.embedding.embedders import packaged_folder

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
    small = load_encoder(packaged_folder(), batch_tokens=16)
    assert np.abs(small.embed(texts) - minilm.embed(texts)).max() < 1e-6


def test_what_the_files_of_the_packaged_model_say() -> None:
    model = open_model("sentence-transformers/all-MiniLM-L6-v2")
    assert (model.name, model.max_length, model.pooling) == ("all-MiniLM-L6-v2", 256, Pooling.MEAN)
    assert model.config.hidden_size == 384


CONFIG = {"model_type": "bert", "vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 1}
CONFIG |= {"num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 16}


def folder_with(path: Path, config: dict[str, object], pooling: dict[str, object] | None = None) -> Path:
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text("{}")
    if pooling is not None:
        (path / "1_Pooling").mkdir()
        (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return path


def test_a_folder_without_pooling_takes_the_mean(tmp_path: Path) -> None:
    model = read_model("x", folder_with(tmp_path, CONFIG))
    assert (model.pooling, model.max_length) == (Pooling.MEAN, 16)


def test_the_first_token_can_be_the_vector(tmp_path: Path) -> None:
    assert read_model("x", folder_with(tmp_path, CONFIG, {"pooling_mode_cls_token": True})).pooling is Pooling.FIRST


@pytest.mark.parametrize(
    ("config", "pooling", "said"),
    [
        (CONFIG | {"model_type": "t5"}, None, "model_type"),
        (CONFIG, {"pooling_mode_max_tokens": True}, "1_Pooling/config.json: expected either the mean"),
        ({"model_type": "bert"}, None, "vocab_size"),
    ],
)
def test_what_cannot_be_served_is_named(tmp_path: Path, config: dict[str, object], pooling: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_model(str(folder_with(tmp_path, config, pooling)))  # pyright: ignore[reportArgumentType]


def test_a_name_that_is_no_model() -> None:
    with pytest.raises(ConfigError, match="embedding_model: expected all-MiniLM-L6-v2 or a folder"):
        open_model("/nowhere")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, CONFIG)
    save_file({"bert.embeddings.word_embeddings.weight": torch.zeros(8, 4)}, folder / "model.safetensors")
    with pytest.raises(WeightsError, match="expected the tensor embeddings"):
        load_encoder(folder)
