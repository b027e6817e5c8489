"""An embedder serves the files with which the server was started, or none: a client may compare vectors of two of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gpu_workers.embedding.batch_times import BatchTimes
from gpu_workers.embedding.embedder import load_model
from gpu_workers.embedding.sentence_files import SENTENCE_FILES
from gpu_workers.embedding.settings import EmbedderSettings
from messages.errors import ConfigError
from messages.lifecycle.model_digests import read_digests
from tests.support.embedding.tiny_decoders import write_decoder, write_sentence_files


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "1_Pooling/config.json"])
def test_other_files_of_the_embedding_model_are_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_decoder(folder)
    write_sentence_files(folder, pooling={"word_embedding_dimension": 48, "pooling_mode_mean_tokens": True})
    digests = read_digests(str(folder), SENTENCE_FILES)
    settings = EmbedderSettings(model_folder=str(folder), model_digests=digests, threads=1)
    shutil.copy(folder / "model.safetensors", folder / "added.safetensors")
    assert load_model(settings, BatchTimes(0.5, on_cores=True)).dimensions, "what is added does not count"
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    with pytest.raises(ConfigError, match="expected the weights with which this server was started"):
        load_model(settings, BatchTimes(0.5, on_cores=True))
