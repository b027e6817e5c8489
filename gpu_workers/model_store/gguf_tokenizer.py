"""Rebuilds the tokenizer of a GGUF file for the tokenizers library: byte-level BPE, or SentencePiece's BPE with bytes."""

from __future__ import annotations

from typing import Any

from gguf import TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from gpu_workers.model_store.gguf_config import end_token_ids
from gpu_workers.model_store.gguf_file import GgufFile

# What splits a text before BPE. Patterns are the models' published ones.
_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
_WORDS = {"llama-bpe": _LLAMA3_WORDS, "llama3": _LLAMA3_WORDS, "qwen2": _QWEN2_WORDS}
_DIGITS_FIRST = ("smollm",)
_PLAIN = ("gpt-2", "gpt2")
SUPPORTED_PRE_TOKENIZERS = (*_DIGITS_FIRST, *_PLAIN, *_WORDS)
_SPACE = "\u2581"


class UnsupportedTokenizerError(ValueError):
    """The file's tokenizer is of an unsupported kind; the text lists the supported ones."""


def build_tokenizer(source: GgufFile) -> Tokenizer:
    """The tokenizer with its control tokens. It prepends the begin token where the model expects it.

    Raises: UnsupportedTokenizerError, GgufError."""
    kind = str(source.key("tokenizer.ggml.model"))
    if kind == "gpt2":
        tokenizer = _byte_level(source)
    elif kind == "llama":
        tokenizer = _sentence_piece(source)
    else:
        raise UnsupportedTokenizerError(f"tokenizer.ggml.model: expected gpt2 or llama, got {kind!r}")
    _add_tokens(tokenizer, source)
    if _adds_begin(source):
        begin = int(source.key("tokenizer.ggml.bos_token_id"))
        text = source.key("tokenizer.ggml.tokens")[begin]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{text} $A", pair=f"{text} $A {text} $B", special_tokens=[(text, begin)]
        )
    return tokenizer


def tokenizer_config(source: GgufFile) -> dict[str, Any]:
    """tokenizer_config.json: the names of the special tokens, and the chat template where there is one."""
    tokens = source.key("tokenizer.ggml.tokens")

    def text(key: str) -> str | None:
        token = source.key(f"tokenizer.ggml.{key}_token_id", None)
        return None if token is None else tokens[int(token)]

    document = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": text("bos"),
        "eos_token": tokens[end_token_ids(source)[0]],
        "unk_token": text("unknown"),
        "pad_token": text("padding"),
        "add_bos_token": _adds_begin(source),
        "model_max_length": int(source.model_key("context_length")),
        "clean_up_tokenization_spaces": False,
    }
    template = source.key("tokenizer.chat_template", None)
    return document if template is None else document | {"chat_template": template}


def _adds_begin(source: GgufFile) -> bool:
    """True if a text begins with the begin token. If the file does not say, tokenizers of kind llama do so."""
    usual = source.key("tokenizer.ggml.model") == "llama" or source.key("tokenizer.ggml.pre", "") in ("llama-bpe", "llama3")
    wanted = bool(source.key("tokenizer.ggml.add_bos_token", usual))
    return wanted and source.key("tokenizer.ggml.bos_token_id", None) is not None


def _byte_level(source: GgufFile) -> Tokenizer:
    pre = str(source.key("tokenizer.ggml.pre", "gpt-2"))
    if pre not in SUPPORTED_PRE_TOKENIZERS:
        supported = ", ".join(SUPPORTED_PRE_TOKENIZERS)
        raise UnsupportedTokenizerError(f"tokenizer.ggml.pre: expected one of {supported}, got {pre!r}")
    vocabulary = {text: index for index, text in enumerate(source.key("tokenizer.ggml.tokens"))}
    merges = [_pair(merge) for merge in source.key("tokenizer.ggml.merges")]
    whole_words = pre in ("llama-bpe", "llama3")
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=whole_words))
    if pre in _WORDS:
        words = pre_tokenizers.Split(Regex(_WORDS[pre]), behavior="isolated", invert=False)
        split = [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    else:
        digits = [pre_tokenizers.Digits(individual_digits=True)] if pre in _DIGITS_FIRST else []
        split = [*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _sentence_piece(source: GgufFile) -> Tokenizer:
    tokens = source.key("tokenizer.ggml.tokens")
    scores = source.key("tokenizer.ggml.scores")
    vocabulary = {text: index for index, text in enumerate(tokens)}
    unknown = tokens[int(source.key("tokenizer.ggml.unknown_token_id", 0))]
    merges = merges_from_scores(vocabulary, scores)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefix = bool(source.key("tokenizer.ggml.add_space_prefix", True))
    spaces = [normalizers.Replace(" ", _SPACE)]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), *spaces] if prefix else spaces)
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return tokenizer


def merges_from_scores(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """SentencePiece stores a score per piece instead of merges: the better the score, the earlier a pair becomes that piece."""
    ranked: list[tuple[float, int, int, tuple[str, str]]] = []
    for piece, index in vocabulary.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                ranked.append((-scores[index], vocabulary[left], vocabulary[right], (left, right)))
    ranked.sort(key=lambda merge: merge[:3])
    return [pair for *_, pair in ranked]


def _add_tokens(tokenizer: Tokenizer, source: GgufFile) -> None:
    special = (TokenType.CONTROL, TokenType.UNKNOWN)
    for text, kind in zip(source.key("tokenizer.ggml.tokens"), source.key("tokenizer.ggml.token_type", []), strict=False):
        if kind in special:
            tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False)])
        elif kind == TokenType.USER_DEFINED:
            tokenizer.add_tokens([AddedToken(text, special=False, normalized=False)])
