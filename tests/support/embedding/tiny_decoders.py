"""Tiny random decoders as embedding models are published: without a head, with a tokenizer that appends an end token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ("tardigrade", "survives", "anything", "the", "server", "query", "water", "bear")
END, UNKNOWN = 0, 1
WINDOW = 24  # of the Gemma's sliding layers
VOCABULARY, LONGEST = 101, 256
_SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 80,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": LONGEST,
    "initializer_range": 0.2,
}
_GEMMA_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "mistral": ("MistralConfig", {"sliding_window": None, "tie_word_embeddings": False}),
    "qwen3": ("Qwen3Config", {"use_sliding_window": False, "tie_word_embeddings": True}),
    "gemma3_text": ("Gemma3TextConfig", {"query_pre_attn_scalar": 24, "sliding_window": WINDOW, "layer_types": _GEMMA_LAYERS}),
}


def write_decoder(folder: Path, kind: str = "qwen3", *, with_head: bool = False) -> Any:
    """Write the decoder and its tokenizer. Returns the model of transformers, which gives hidden states."""
    transformers = pytest.importorskip("transformers")
    name, options = DECODERS[kind]
    torch.manual_seed(0)
    maker = transformers.AutoModelForCausalLM if with_head else transformers.AutoModel
    model = maker.from_config(getattr(transformers, name)(**_SIZES, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms too, else their use is not tested
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return model.model if with_head else model


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of words, whose texts end with the token END."""
    vocabulary = {"<end>": END, "<unknown>": UNKNOWN} | {word: index for index, word in enumerate(WORDS, start=2)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", END)])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_sentence_files(
    folder: Path,
    pooling: dict[str, Any] | None = None,
    modules: tuple[str, ...] | None = None,
    prompts: dict[str, Any] | None = None,
    longest: int | None = None,
) -> None:
    """Write those files of sentence-transformers that are given. `modules`: the names of their classes."""
    if pooling is not None:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if modules is not None:
        entries = [
            {"idx": index, "path": f"{index}_{kind}" if index else "", "type": f"sentence_transformers.models.{kind}"}
            for index, kind in enumerate(modules)
        ]
        (folder / "modules.json").write_text(json.dumps(entries))
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    if longest is not None:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
