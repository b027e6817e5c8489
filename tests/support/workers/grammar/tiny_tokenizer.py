"""A tokenizer for the tiny model: bytes of ASCII, some pairs of them, and an end token."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.support.workers.tiny_model import TINY

END = 210  # the last id of the tiny model
_BYTES = [chr(code) if code != 32 else "Ġ" for code in range(32, 127)]
_PAIRS = [('"', ":"), (":", "Ġ"), (",", "Ġ"), ("t", "r"), ("u", "e"), ("tr", "ue"), ("0", "1"), ("a", "b"), ("{", '"')]


def tiny_tokenizer() -> Tokenizer:
    """The tokenizer of printable ASCII. Ids 104 to 209 are not used."""
    words = [*_BYTES, *("".join(pair) for pair in _PAIRS)]
    model = models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=_PAIRS)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    unused = [AddedToken(f"<unused {index}>", special=True) for index in range(len(words), END)]
    tokenizer.add_special_tokens([*unused, AddedToken("<|end|>", special=True)])
    assert tokenizer.get_vocab_size() == TINY["vocab_size"]
    return tokenizer


def write_tokenizer(folder: Path) -> Tokenizer:
    """Put tokenizer.json and what names the end token beside a checkpoint."""
    tokenizer = tiny_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END}))
    return tokenizer
