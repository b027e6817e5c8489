"""GGUF files become folders: values, names, tokenizers, refusals, and a cache that holds whole folders only."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from gpu_workers.model_store.gguf_conversion import convert_gguf
from gpu_workers.model_store.gguf_file import GgufFile, halves_from_pairs, hugging_face_name
from gpu_workers.model_store.gguf_folder import FILE_LIST
from gpu_workers.model_store.gguf_header import GgufError
from gpu_workers.model_store.gguf_tokenizer import UnsupportedTokenizerError, merges_from_scores
from gpu_workers.model_store.model_folder import CACHE_VARIABLE, ModelNotFoundError
from gpu_workers.models.resolve import resolve_model
from messages.hash_chain import HASH_CHAIN

HIDDEN, HEADS, KV_HEADS, FFN = 64, 4, 2, 96
BYTE_TOKENS = [
    "<|end|>",
    "<|turn|>",
    *(chr(c) for c in range(33, 127)),
    "\u0120",
    "\u010a",
    "he",
    "ll",
    "hell",
    "\u0120a",
    "12",
]
BYTE_MERGES = ["h e", "l l", "he ll", "\u0120 a", "1 2"]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def _layer_shapes() -> dict[str, tuple[int, ...]]:
    head_dim = HIDDEN // HEADS
    return {
        "attn_norm.weight": (HIDDEN,),
        "attn_q.weight": (HIDDEN, HIDDEN),
        "attn_k.weight": (KV_HEADS * head_dim, HIDDEN),
        "attn_v.weight": (KV_HEADS * head_dim, HIDDEN),
        "attn_output.weight": (HIDDEN, HIDDEN),
        "ffn_norm.weight": (HIDDEN,),
        "ffn_gate.weight": (FFN, HIDDEN),
        "ffn_up.weight": (FFN, HIDDEN),
        "ffn_down.weight": (HIDDEN, FFN),
    }


def _write(path: Path, architecture: str = "llama", kind: str = "gpt2", pre: str = "smollm", **keys: Any) -> dict[str, Any]:
    """A one-layer model; returns the float arrays that were quantised, by their GGUF names."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    tokens = keys.pop("tokens", BYTE_TOKENS)
    writer.add_token_list(tokens)
    writer.add_token_types(keys.pop("types", [3, 3] + [1] * (len(tokens) - 2)))
    if kind == "gpt2":
        writer.add_token_merges(BYTE_MERGES)
    else:
        writer.add_token_scores(keys.pop("scores"))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, value in keys.items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)
    arrays = _add_tensors(writer, len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return arrays


def _add_tensors(writer: gguf.GGUFWriter, n_tokens: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    shapes = {"token_embd.weight": (n_tokens, HIDDEN), "output_norm.weight": (HIDDEN,)}
    shapes |= {f"blk.0.{name}": shape for name, shape in _layer_shapes().items()}
    arrays = {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    for name, values in arrays.items():
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            quantised = gguf.quantize(values, gguf.GGMLQuantizationType.Q4_1)
            writer.add_tensor(name, quantised, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
            arrays[name] = gguf.dequantize(quantised, gguf.GGMLQuantizationType.Q4_1)
    return arrays


def _converted(folder: Path, **options: Any) -> tuple[dict[str, Any], Path]:
    arrays = _write(folder / "tiny.gguf", **options)
    target = folder / "converted"
    target.mkdir()
    convert_gguf(folder / "tiny.gguf", target, lambda what, fraction: None)
    return arrays, target


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_values_are_the_dequantised_ones(tmp_path: Path, architecture: str) -> None:
    arrays, target = _converted(tmp_path, architecture=architecture)
    stored = load_file(target / "model.safetensors")
    assert set(stored) == {hugging_face_name(name) for name in arrays}
    for name, values in arrays.items():
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-2]) if architecture == "llama" else None
        expected = values if heads is None else halves_from_pairs(values, heads)
        np.testing.assert_array_equal(stored[hugging_face_name(name)], expected)


def test_pairs_become_halves() -> None:
    rows = np.arange(8.0)[:, None]  # two heads of four rows: pairs (0, 1), (2, 3)
    assert halves_from_pairs(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_documents(tmp_path: Path) -> None:
    _, target = _converted(tmp_path)
    config = json.loads((target / "config.json").read_text())
    assert (config["model_type"], config["tie_word_embeddings"], config["rms_norm_eps"]) == ("llama", True, 1e-5)
    assert json.loads((target / "generation_config.json").read_text())["eos_token_id"] == 0
    tokenizer = json.loads((target / "tokenizer_config.json").read_text())
    assert (tokenizer["bos_token"], tokenizer["eos_token"], tokenizer["chat_template"]) == ("<|turn|>", "<|end|>", TEMPLATE)


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", ["<|turn|>", "hell", "o", "\u0120a", "1", "2"]),
        ("gpt-2", ["<|turn|>", "hell", "o", "\u0120a", "12"]),
        ("llama-bpe", ["<|turn|>", "<|turn|>", "hell", "o", "\u0120a", "12"]),
        ("qwen2", ["<|turn|>", "hell", "o", "\u0120a", "1", "2"]),
    ],
)
def test_byte_level_tokenizers(tmp_path: Path, pre: str, pieces: list[str]) -> None:
    _, target = _converted(tmp_path, pre=pre)
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    encoded = tokenizer.encode("<|turn|>hello a12")
    assert encoded.tokens == pieces
    assert tokenizer.decode(encoded.ids, skip_special_tokens=True) == "hello a12"


def test_sentence_piece_tokenizer(tmp_path: Path) -> None:
    space = "\u2581"
    pieces = {"<unk>": 0.0, "<s>": 0.0, **{f"<0x{b:02X}>": 0.0 for b in range(256)}}
    pieces |= {
        "l": -9.0,
        "o": -9.0,
        "h": -9.0,
        "e": -9.0,
        space: -9.0,
        "he": -1.0,
        "ll": -2.0,
        "hell": -3.0,
        f"{space}hell": -4.0,
    }
    types = [2, 3] + [6] * 256 + [1] * (len(pieces) - 258)
    _, target = _converted(tmp_path, kind="llama", tokens=list(pieces), scores=list(pieces.values()), types=types)
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    encoded = tokenizer.encode("hello\u00e4 he")
    assert encoded.tokens == ["<s>", f"{space}hell", "o", "<0xC3>", "<0xA4>", space, "he"]
    assert tokenizer.decode(encoded.ids, skip_special_tokens=True) == "hello\u00e4 he"


def test_better_scores_merge_first() -> None:
    vocabulary = {text: index for index, text in enumerate(["a", "b", "ab", "ba", "aba"])}
    assert merges_from_scores(vocabulary, [0.0, 0.0, -2.0, -1.0, -3.0])[:2] == [("b", "a"), ("a", "b")]


def test_refusals(tmp_path: Path) -> None:
    _write(tmp_path / "odd.gguf", pre="tekken")
    with pytest.raises(UnsupportedTokenizerError, match=r"tokenizer.ggml.pre: expected one of smollm.*'tekken'"):
        convert_gguf(tmp_path / "odd.gguf", tmp_path, lambda what, fraction: None)
    _write(tmp_path / "bloom.gguf", architecture="bloom")
    with pytest.raises(GgufError, match=r"general.architecture: expected one of llama, .*'bloom'"):
        GgufFile(tmp_path / "bloom.gguf")
    (tmp_path / "text.gguf").write_text("no")
    with pytest.raises(GgufError, match="expected a GGUF file"):
        GgufFile(tmp_path / "text.gguf")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_file_is_converted_once_however_many_ask(tmp_path: Path, cache: Path) -> None:
    _write(tmp_path / "tiny.gguf")
    starts: list[str] = []
    found: list[Path | None] = []

    def told(what: str, fraction: float) -> None:
        if not fraction:
            starts.append(what)

    def resolve() -> None:
        found.append(resolve_model(str(tmp_path / "tiny.gguf"), told).path)

    threads = [threading.Thread(target=resolve, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert starts == ["converting tiny.gguf"]
    assert len(found) == 4
    assert len(set(found)) == 1


def test_what_died_half_written_does_not_count(tmp_path: Path, cache: Path) -> None:
    _write(tmp_path / "tiny.gguf")
    whole = resolve_model(str(tmp_path / "tiny.gguf")).path
    assert whole is not None
    partial = whole.with_name(whole.name + ".partial")
    whole.rename(partial)
    (partial / "model.safetensors").write_bytes(b"half")
    assert resolve_model(str(tmp_path / "tiny.gguf")).path == whole
    assert load_file(whole / "model.safetensors")
    assert not partial.exists()


@pytest.mark.parametrize("name", ["tokenizer_config.json", "tokenizer.json", "config.json", "model.safetensors"])
@pytest.mark.parametrize("has_list", [True, False])
def test_a_folder_without_one_of_its_files_is_made_anew(name: str, has_list: bool, tmp_path: Path, cache: Path) -> None:
    _write(tmp_path / "tiny.gguf")
    whole = resolve_model(str(tmp_path / "tiny.gguf")).path
    assert whole is not None
    before = {file.name: file.read_bytes() for file in whole.iterdir()}
    (whole / name).unlink()
    if not has_list:  # as in a folder of an earlier release
        (whole / FILE_LIST).unlink()
    assert resolve_model(str(tmp_path / "tiny.gguf")).path == whole
    assert {file.name: file.read_bytes() for file in whole.iterdir()} == before
    assert sorted(path.suffix for path in (cache / "models").iterdir() if path != whole) == [".lock"]


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", FILE_LIST])
def test_a_folder_with_a_file_that_is_cut_off_is_made_anew(name: str, tmp_path: Path, cache: Path) -> None:
    _write(tmp_path / "tiny.gguf")
    whole = resolve_model(str(tmp_path / "tiny.gguf")).path
    assert whole is not None
    before = (whole / name).read_bytes()
    (whole / name).write_bytes(before[: len(before) // 2])
    assert resolve_model(str(tmp_path / "tiny.gguf")).path == whole
    assert (whole / name).read_bytes() == before


def test_a_failed_conversion_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    _write(tmp_path / "odd.gguf", pre="tekken")
    with pytest.raises(UnsupportedTokenizerError):
        resolve_model(str(tmp_path / "odd.gguf"))
    assert [path.suffix for path in (cache / "models").iterdir()] == [".lock"]


def test_names(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = resolve_model(HASH_CHAIN)
    assert (chain.kind, chain.setting, chain.config) == ("hash_chain", HASH_CHAIN, None)
    arrays, target = _converted(tmp_path)
    folder = resolve_model(str(target))
    assert (folder.kind, folder.name, folder.path) == ("weights", "converted", target)
    assert folder.config is not None
    assert folder.config.vocabulary == len(arrays["token_embd.weight"])
    for name, text in (
        ("nothing-here", "no such file"),
        (str(tmp_path), "expected config.json"),
        (__file__, "expected a .gguf"),
    ):
        with pytest.raises(ModelNotFoundError, match=text):
            resolve_model(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFoundError, match="expected a folder here, or a model that the Hugging Face hub gives"):
        resolve_model("nobody/no-such-model")


@pytest.mark.slow
def test_smollm2_text_round_trips(smollm2_folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    for text in ("Hello, world!  two  spaces\n\n", "caf\u00e9 \u4f60\u597d \U0001f600", "x1 = 12345", "\u0661\u0662\u0663"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert len(tokenizer.encode("12345").ids) == 5
    assert tokenizer.encode("<|im_start|>user").ids[0] == 1
