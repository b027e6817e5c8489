"""What the files of embedding models say, and what cannot be served is named before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_workers.embedding.model_files import check_model, open_model, read_model
from gpu_workers.embedding.sentence_files import Pooling
from gpu_workers.embedding.settings import EmbedderSettings
from messages.errors import ConfigError
from tests.support.embedding.embedders import packaged_folder, write_bert_files
from tests.support.embedding.tiny_decoders import LONGEST, write_decoder, write_sentence_files

LAST = {"word_embedding_dimension": 48, "pooling_mode_lasttoken": True, "include_prompt": True}
PROMPTS = {"prompts": {"query": "Instruct: find\nQuery:", "document": None}, "default_prompt_name": "query"}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a decoder."""
    folder = tmp_path_factory.mktemp("decoder")
    write_decoder(folder)
    return folder


def copied(folder: Path, to: Path, **changes: Any) -> Path:
    """The decoder's files in another folder; `changes`: of its config."""
    for path in folder.iterdir():
        (to / path.name).hardlink_to(path)
    config = json.loads((to / "config.json").read_text()) | changes
    (to / "config.json").unlink()
    (to / "config.json").write_text(json.dumps(config))
    return to


def test_what_the_files_of_the_packaged_model_say() -> None:
    packaged_folder()
    model = open_model("sentence-transformers/all-MiniLM-L6-v2")
    assert (model.name, model.max_length, model.pooling) == ("all-MiniLM-L6-v2", 256, Pooling.MEAN)
    assert (model.dimensions, model.files.normalizes) == (384, True)
    check_model("minilm")


def test_without_other_files_encoders_take_the_mean_and_decoders_the_last_token(decoder: Path, tmp_path: Path) -> None:
    encoder = read_model("x", write_bert_files(tmp_path))
    assert (encoder.pooling, encoder.max_length, encoder.dimensions) == (Pooling.MEAN, 16, 4)
    found = open_model(str(decoder))
    assert (found.pooling, found.max_length, found.dimensions) == (Pooling.LAST, LONGEST, 48)
    assert (found.files.normalizes, found.files.prompts) == (True, {})
    check_model(str(decoder))


@pytest.mark.parametrize(
    ("file", "pooling"),
    [
        (LAST, Pooling.LAST),
        ({"pooling_mode_cls_token": True}, Pooling.FIRST),
        ({"pooling_mode_mean_tokens": True}, Pooling.MEAN),
        ({"pooling_mode": "lasttoken"}, Pooling.LAST),
    ],
)
def test_files_decide(file: dict[str, Any], pooling: Pooling, decoder: Path, tmp_path: Path) -> None:
    folder = copied(decoder, tmp_path)
    write_sentence_files(folder, file, ("Transformer", "Pooling", "Normalize"), PROMPTS, longest=100)
    model = open_model(str(folder))
    assert (model.pooling, model.max_length, model.files.normalizes) == (pooling, 100, True)
    assert model.files.prompts == {"query": "Instruct: find\nQuery:", "document": ""}
    assert model.files.default_prompt == "query"
    write_sentence_files(folder, modules=("Transformer", "Pooling"))
    assert not open_model(str(folder)).files.normalizes


def test_settings_come_before_files(decoder: Path, tmp_path: Path) -> None:
    folder = copied(decoder, tmp_path)
    write_sentence_files(folder, LAST, longest=100)
    model = open_model(str(folder), EmbedderSettings(pooling="mean", max_length=50))
    assert (model.pooling, model.max_length) == (Pooling.MEAN, 50)
    assert open_model(str(folder), EmbedderSettings(max_length=10_000)).max_length == 100


def test_the_packaged_decoder_is_checked_by_its_header() -> None:
    check_model("smollm2")
    assert open_model("smollm2").dimensions == 576


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "t5"}, r"config.json: model_type: expected one of bert, llama, .*, got 't5'"),
        ({"auto_map": {"AutoModel": "modeling.Both"}}, r"auto_map: expected no AutoModel, got 'modeling.Both'"),
        ({"is_causal": False}, r"is_causal: expected true, got false"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, r"config.json: rope_type: expected one of"),
        ({"quantization_config": {"quant_method": "hqq"}}, r"config.json: quantization_config.quant_method: expected one of"),
    ],
)
def test_a_config_that_cannot_be_served_is_named(changes: dict[str, Any], said: str, decoder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^embedding_model: .*" + said):
        check_model(str(copied(decoder, tmp_path, **changes)))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"pooling": {"pooling_mode_max_tokens": True}},
            "1_Pooling/config.json: pooling_mode: expected one of mean, cls, .* max",
        ),
        ({"pooling": LAST | {"pooling_mode_mean_tokens": True}}, "pooling_mode: expected one of .*, got mean and lasttoken"),
        (
            {"pooling": {"pooling_mode_mean_tokens": True, "include_prompt": False}, "prompts": PROMPTS},
            "include_prompt: expected",
        ),
        ({"modules": ("Transformer", "Pooling", "Dense")}, r"modules.json: type: expected one of Transformer, .*, got 'Dense'"),
        ({"prompts": {"default_prompt_name": "query"}}, "default_prompt_name: expected one of no prompts, got query"),
    ],
)
def test_other_ways_to_make_vectors_are_named(files: dict[str, Any], said: str, decoder: Path, tmp_path: Path) -> None:
    write_sentence_files(copied(decoder, tmp_path), **files)
    with pytest.raises(ConfigError, match=r"^embedding_model: .*" + said):
        check_model(str(tmp_path))


def test_a_config_of_bert_names_what_it_lacks(tmp_path: Path) -> None:
    write_bert_files(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ConfigError, match=r"config.json: .*vocab_size"):
        open_model(str(tmp_path))


def test_a_folder_without_weights_or_tokenizer_is_refused(decoder: Path, tmp_path: Path) -> None:
    (copied(decoder, tmp_path) / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"^embedding_model: .*: expected weights in .safetensors files"):
        check_model(str(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"^embedding_model: .*: expected tokenizer.json in the folder"):
        check_model(str(tmp_path))


@pytest.mark.parametrize("name", ["/nowhere", "hash-chain"])
def test_a_name_that_is_no_model(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"embedding_model: expected all-MiniLM-L6-v2, a folder .* on the hub, got {name}"):
        check_model(name)
