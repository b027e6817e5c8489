"""The rules for single tokens of one slot, as arrays: biases, allowed tokens, and the tokens of bad words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from messages.steps import TokenRules

ANY_TOKEN = -1  # in `SlotRules.heads`: before the first token of a bad word


@dataclass(frozen=True)
class SlotRules:
    """The `TokenRules` of one sequence. All arrays are on the host."""

    allowed: np.ndarray | None  # [A] int64, distinct: no other tokens are sampled; None: all may be
    biased: np.ndarray  # [B] int64, distinct
    biases: np.ndarray  # [B] float32, added to the logits of `biased`; minus infinity: a bad word of one token
    heads: np.ndarray  # [M, L] int64: all but the last token of each longer bad word, after `ANY_TOKEN`s
    n_heads: np.ndarray  # [M] int64: how many of the L entries are tokens
    lasts: np.ndarray  # [M] int64: the last token of each longer bad word

    @classmethod
    def of(cls, rules: TokenRules) -> SlotRules:
        """The arrays of these rules."""
        biases = dict(zip(rules.biased, rules.biases, strict=True)) | {bad[0]: -np.inf for bad in rules.bad if len(bad) == 1}
        longer = [bad for bad in rules.bad if len(bad) > 1]
        n_heads = np.array([len(bad) - 1 for bad in longer], np.int64)
        heads = np.full((len(longer), n_heads.max(initial=0)), ANY_TOKEN, np.int64)
        for row, bad in zip(heads, longer, strict=True):
            row[len(row) - len(bad) + 1 :] = bad[:-1]
        return cls(
            allowed=None if rules.allowed is None else np.unique(np.array(rules.allowed, np.int64)),
            biased=np.array(list(biases), np.int64),
            biases=np.array(list(biases.values()), np.float32),
            heads=heads,
            n_heads=n_heads,
            lasts=np.array([bad[-1] for bad in longer], np.int64),
        )

    def all_biases(self) -> tuple[np.ndarray, np.ndarray]:
        """(ids [N] int64, biases [N] float32) of the tokens that are biased or in `allowed`, each once; tokens that are not
        allowed are left out."""
        if self.allowed is None:
            return self.biased, self.biases
        biases = np.zeros(len(self.allowed), np.float32)
        _, at, which = np.intersect1d(self.allowed, self.biased, return_indices=True)
        biases[at] = self.biases[which]
        return self.allowed, biases

    def forbidden_after(self, output: np.ndarray, vocabulary: int) -> np.ndarray:
        """[vocabulary] bool: the ids that may not follow these generated tokens [n]. The caller may change it."""
        forbidden = np.full(vocabulary, self.allowed is not None)
        if self.allowed is not None:
            forbidden[self.allowed] = False
        forbidden[self.biased[np.isneginf(self.biases)]] = True
        n_tail = min(self.heads.shape[1], len(output))
        heads = self.heads[:, self.heads.shape[1] - n_tail :]
        is_next = ((heads == output[len(output) - n_tail :]) | (heads == ANY_TOKEN)).all(1) & (self.n_heads <= n_tail)
        forbidden[self.lasts[is_next]] = True
        return forbidden
