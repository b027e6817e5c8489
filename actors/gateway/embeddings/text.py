"""Texts for the embedding model: token ids, counted and cut. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Encoding, Tokenizer

from actors.gateway.requests.refusals import Refusal, invalid

_FIRST_CHARACTERS = 1 << 15  # of a long text, then four times as many, until these are more tokens than its limit
_WHOLE_MODEL = -1  # of `truncate_prompt_tokens`: as many as the model takes


@dataclass(frozen=True)
class TextLimit:
    """How long a text may be, in tokens. `cuts`: a longer one is cut; otherwise it is refused."""

    tokens: int
    cuts: bool


class EmbeddingText:
    """The tokenizer of one embedding model. `max_length`: tokens of the longest text, special tokens included."""

    def __init__(self, folder: Path, max_length: int) -> None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer, self.max_length = tokenizer, max_length
        self.vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)

    def limit(self, truncate_prompt_tokens: int | None) -> TextLimit:
        """What vLLM's field of this name asks for. Raises: Refusal."""
        if truncate_prompt_tokens is None:
            return TextLimit(self.max_length, cuts=False)
        if truncate_prompt_tokens == _WHOLE_MODEL:
            return TextLimit(self.max_length, cuts=True)
        if not 1 <= truncate_prompt_tokens <= self.max_length:
            expected = f"-1, or 1 to {self.max_length}, the tokens that this model takes"
            raise invalid("truncate_prompt_tokens", expected, truncate_prompt_tokens)
        return TextLimit(truncate_prompt_tokens, cuts=True)

    def encode(self, texts: Sequence[str], field: str, limit: TextLimit, prompt: str = "") -> list[np.ndarray]:
        """Token ids with the model's special tokens, int32 [n] each. A text that is cut keeps the special tokens at its end.

        `field`: of the texts, for refusals; `prompt`: stands before each text. Raises: Refusal."""
        for index, text in enumerate(texts):
            place = _place(field, index, len(texts))
            if not text:
                raise invalid(place, "text", text)
            try:
                text.encode()
            except UnicodeError as error:
                reason = getattr(error, "reason", str(error))
                raise Refusal("invalid", f"{place}: expected valid Unicode text, got {reason}", field=place) from None
        encodings = [self._encoding(prompt + text, limit.tokens) for text in texts]
        found = []
        for index, encoding in enumerate(encodings):
            ids, mask = encoding.ids, encoding.special_tokens_mask
            if not ids:  # a decoder's tokenizer adds no special tokens
                raise invalid(_place(field, index, len(texts)), "text with at least one token", texts[index])
            n_last = 0  # special tokens at the end
            while n_last < len(ids) and mask[len(ids) - 1 - n_last]:
                n_last += 1
            found.append(self._fitted(ids, n_last, _place(field, index, len(texts)), limit))
        return found

    def _encoding(self, text: str, limit: int) -> Encoding:
        """Token ids of a beginning of the text with at least `limit` tokens: all of a long text would take gigabytes."""
        n = _FIRST_CHARACTERS
        while n < len(text):
            encoding = self._tokenizer.encode_batch([text[:n]])[0]  # which releases the interpreter's lock
            words = [word for word in encoding.word_ids if word is not None]
            # the last word, or a mark such as [SEP], may have been cut
            if sum(word < words[-1] for word in words) > limit + 64:
                return encoding
            n *= 4
        return self._tokenizer.encode_batch([text])[0]

    def check(self, texts: Sequence[Sequence[int]], field: str, limit: TextLimit) -> list[np.ndarray]:
        """Token ids that a client has sent, as they are. Raises: Refusal."""
        found = []
        for index, ids in enumerate(texts):
            place = _place(field, index, len(texts))
            if not len(ids):
                raise invalid(place, "at least one token", [])
            if min(ids) < 0 or max(ids) >= self.vocabulary:
                wrong = min(ids) if min(ids) < 0 else max(ids)
                raise invalid(place, f"token ids from 0 to {self.vocabulary - 1}", wrong)
            found.append(self._fitted(ids, 0, place, limit))
        return found

    def _fitted(self, ids: Sequence[int], n_last: int, place: str, limit: TextLimit) -> np.ndarray:
        if len(ids) > limit.tokens:
            if not limit.cuts:
                expected = f"at most {limit.tokens} tokens (the longest text of this embedding model)"
                hint = "; truncate_prompt_tokens: -1 cuts longer texts"
                raise Refusal("too_long", f"{place}: expected {expected}, got at least {len(ids)}{hint}", field=place)
            n_last = min(n_last, limit.tokens - 1)
            ids = [*ids[: limit.tokens - n_last], *ids[len(ids) - n_last :]]
        return np.asarray(ids, dtype="<i4")


def _place(field: str, index: int, n_texts: int) -> str:
    return f"{field}[{index}]" if n_texts > 1 else field
