"""The tokens of a model as a grammar sees them: their bytes, and which of them are special."""

from __future__ import annotations

import threading
from pathlib import Path

from llguidance import LLTokenizer
from tokenizers import Tokenizer

_END = "<|end of a grammar|>"
_CHARACTER = r'[^"\\\x00-\x1F\x7F]'  # of a JSON string, without escapes
_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
# Sets of tokens that a mask allows at once where the grammar allows all their texts; only others are looked at one by one. The
# library's own sets know three lengths, so the masks of a bounded text would be slow towards its end.
_SLICES = (
    r"[\x20\x0A\x0D\x09]+",
    *(f"{_CHARACTER}{{1,{length}}}" for length in _LENGTHS),
    f"{_CHARACTER}+",
    "[a-z]+",
    " [a-z]+",
)


class GrammarVocabulary:
    """Made in a thread while the model loads: that takes a quarter of a second for 49,000 tokens, and 50 MB of memory.

    It is made even if no request ever asks for a grammar. Made at the first such request it would stop all running sequences
    for as long, even in a thread: both libraries that make it hold the interpreter's lock. They compile grammars without it.
    """

    def __init__(self, tokenizer: Path, size: int) -> None:
        """tokenizer: a tokenizer.json. size: number of token ids of the model; those that the tokenizer lacks are never
        allowed."""
        self.size = size
        self._path, self._made = tokenizer, threading.Event()
        self._tokenizer: LLTokenizer | None = None
        self._error: Exception | None = None
        threading.Thread(target=self._make, name="grammar vocabulary", daemon=True).start()

    @property
    def n_columns(self) -> int:
        """Ids in a mask, that of the end included."""
        return self.tokenizer().vocab_size

    @property
    def end(self) -> int:
        """The id that stands for the end of an answer in a mask. The model does not sample it."""
        return self.tokenizer().eos_token

    def tokenizer(self) -> LLTokenizer:
        """The vocabulary for matchers. Waits until it is made. Raises: ValueError for a file that cannot be used."""
        self._made.wait()
        if self._tokenizer is None:
            raise ValueError(f"{self._path}: expected a tokenizer that grammars can use, got {self._error}")
        return self._tokenizer

    def _make(self) -> None:
        try:
            tokenizer = Tokenizer.from_file(str(self._path))
            tokenizer.add_special_tokens([_END])
            end = tokenizer.token_to_id(_END)
            assert end is not None, "it was added"
            n_vocab = max(self.size, end + 1)
            self._tokenizer = LLTokenizer(tokenizer.to_str(), n_vocab=n_vocab, eos_token=end, slices=list(_SLICES))
        except Exception as error:  # the library raises plain Exception
            self._error = error
        finally:
            self._made.set()


def find_vocabulary(folder: Path, size: int) -> GrammarVocabulary | None:
    """The vocabulary of a model folder; None without a tokenizer. size: see `GrammarVocabulary`."""
    path = folder / "tokenizer.json"
    return GrammarVocabulary(path, size) if path.is_file() else None
