"""The configuration of a model without its weights: the same as after a conversion or a download, and read at once."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from gpu_workers.model_store.config_keys import ModelConfigError
from gpu_workers.model_store.gguf_config import hugging_face_config
from gpu_workers.model_store.gguf_file import GgufFile
from gpu_workers.model_store.gguf_folder import FILE_LIST, folder_of_gguf
from gpu_workers.model_store.gguf_header import GgufError, GgufHeader
from gpu_workers.model_store.gguf_types import BLOCKS
from gpu_workers.model_store.model_folder import ModelNotFoundError
from gpu_workers.models.resolve import ModelKind, find_model, read_config
from messages.hash_chain import HASH_CHAIN
from tests.support.hub.small_gguf import qwen2_writer

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 256,
}


def _write_gguf(path: Path, has_vocab_size: bool = True) -> None:
    """A file with keys of several types, arrays of strings and of numbers, and two tensors."""
    writer = qwen2_writer(path)
    writer.add_rope_freq_base(10_000.0)
    if has_vocab_size:
        writer.add_vocab_size(5)
    writer.add_token_list(["a", "b", "\u00e9\u4f60", "", "long " * 50])
    writer.add_token_types([1, 1, 1, 1, 1])
    writer.add_eos_token_id(1)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    for name in ("token_embd.weight", "output.weight"):
        writer.add_tensor(name, np.zeros((5, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("has_vocab_size", [True, False])
def test_the_header_says_what_the_whole_file_says(tmp_path: Path, has_vocab_size: bool) -> None:
    path = tmp_path / "tiny.gguf"
    _write_gguf(path, has_vocab_size)
    assert hugging_face_config(GgufHeader(path)) == hugging_face_config(GgufFile(path))
    config = read_config(str(path))
    assert config is not None
    assert (config.model_type, config.n_layers, config.vocabulary, config.tied_embeddings) == ("qwen2", 2, 5, False)


def test_a_damaged_gguf_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    _write_gguf(path)
    whole = path.read_bytes()
    damaged = {
        "cut": whole[:200],
        "magic": b"GGML" + whole[4:],
        "version": whole[:4] + struct.pack("<I", 9) + whole[8:],
        "endless keys": whole[:16] + struct.pack("<Q", 2**63) + whole[24:],
        "endless text": whole[:24] + struct.pack("<Q", 2**64 - 1) + whole[32:],
        "empty": b"",
    }
    for name, content in damaged.items():
        path.write_bytes(content)
        with pytest.raises(GgufError, match=r"tiny\.gguf: expected a GGUF file"):
            pytest.fail(f"{name}: {GgufHeader(path).tensor_names}")


def test_a_file_that_ends_before_its_last_weight_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    _write_gguf(path)
    whole = path.read_bytes()
    n = len(whole)
    path.write_bytes(whole + b"0")
    assert len(GgufHeader(path).tensor_names) == 2
    path.write_bytes(whole[:-1])
    with pytest.raises(GgufError, match=rf"tiny\.gguf: expected at least {n} bytes, as its header says, got {n - 1}$"):
        GgufHeader(path)


def test_the_sizes_of_types_are_those_of_the_format() -> None:
    assert BLOCKS.items() <= {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}.items()


def test_a_key_of_the_header_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    _write_gguf(path)
    header = GgufHeader(path)
    assert header.key("not.there", None) is None
    with pytest.raises(GgufError, match=r"^qwen2\.not_there: expected this key in tiny\.gguf, got none$"):
        header.model_key("not_there")
    with pytest.raises(GgufError, match=r"^not\.there: expected this key in tiny\.gguf, got none$"):
        header.array_length("not.there")


def test_a_folder_gives_its_config_and_names_the_file_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    config = read_config(str(tmp_path))
    assert config is not None
    assert (config.n_heads, config.n_kv_heads, config.max_position) == (4, 2, 256)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"model_type": "mamba"}))
    with pytest.raises(ModelConfigError, match=rf"^{tmp_path}/config\.json: model_type: expected one of .*, got 'mamba'$"):
        read_config(str(tmp_path))
    (tmp_path / "config.json").write_text("no")
    with pytest.raises(ModelConfigError, match=rf"^{tmp_path}/config\.json: expected a JSON object"):
        read_config(str(tmp_path))


def test_the_hash_chain_has_no_config_and_an_unknown_name_is_refused() -> None:
    assert read_config(HASH_CHAIN) is None
    with pytest.raises(ModelNotFoundError, match=r"no such file or folder; expected .* on the hub$"):
        read_config("nothing-here")
    for name in ("llama3.2", "qwen2.5:7b", "mistral:latest"):
        with pytest.raises(ModelNotFoundError, match=r"on the hub; names of Ollama's library are not known here"):
            read_config(name)
    for address in ("https://huggingface.co/org/model-1.gguf/tree/main", "hf.co/org/model-1.gguf:Q4_K_M"):
        with pytest.raises(ModelNotFoundError, match=r"on the hub; did you mean org/model-1\.gguf\?$"):
            read_config(address)
    with pytest.raises(ModelNotFoundError, match=r"on the hub; did you mean smollm2\?$"):
        read_config("smollm2:latest")


def test_the_packaged_model_has_several_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("", "smollm2", "SmolLM2-135M-Instruct", "SmolLM2-135M")
    assert {find_model(name) for name in names} == {find_model("smollm2")}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "SmolLM2-135M").mkdir()  # what is here comes first
    (tmp_path / "SmolLM2-135M" / "config.json").write_text("{}")
    assert find_model("SmolLM2-135M").kind is ModelKind.FOLDER


def test_a_model_of_the_hub_is_looked_up_in_the_cache_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert read_config("someone/some-model", may_download=False) is None
    snapshot = tmp_path / "models--someone--some-model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "models--someone--some-model" / "refs").mkdir()
    (tmp_path / "models--someone--some-model" / "refs" / "main").write_text("abc")
    config = read_config("someone/some-model")
    assert config is not None
    assert config.hidden == 64


def test_reading_a_config_imports_nothing_heavy(tmp_path: Path) -> None:
    """A start that cannot succeed is refused in less than half a second: no numpy, no torch, no client of the hub."""
    path = tmp_path / "tiny.gguf"
    _write_gguf(path)
    script = "import sys; from gpu_workers.models.resolve import read_config; read_config(sys.argv[1]);" + (
        "print(sorted(sys.modules.keys() & {'numpy', 'torch', 'gguf', 'huggingface_hub', 'tokenizers'}))"
    )
    run = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "[]\n"


def test_a_converted_model_is_found_without_what_converts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start after the first one: the packages that read and write GGUF files take a tenth of a second to import."""
    monkeypatch.setenv("TARDIGRADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.gguf"
    _write_gguf(path)
    folder = folder_of_gguf(path, "tiny")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / FILE_LIST).write_text('{"config.json": 2}')
    script = "import sys; from gpu_workers.models.resolve import fetch_folder, find_model; print(" + (
        "fetch_folder(find_model(sys.argv[1]), print).name, sys.modules.keys() & {'gguf', 'tokenizers', 'safetensors'})"
    )
    run = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == f"{folder_of_gguf(path, 'tiny').name} set()\n"
