"""Thousands of random forks, writes and frees: the ledger's counts agree with a naive model, and every page holds the tokens of
those who hold it, whichever pages were shared and copied."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
import pytest

from actors.pages.chain_root import ROOT
from actors.pages.eviction.choice import EvictionName, make_eviction
from actors.pages.page_hash import page_hash
from actors.pages.page_ledger import PageLedger
from messages.steps import PAGE_TOKENS

N_PAGES, N_OPERATIONS = 40, 10_000


def packed(tokens: list[int]) -> bytes:
    return np.array(tokens, "<i4").tobytes()


@dataclass
class Branch:
    """Tokens, and the pages that hold them; all but the last one are full."""

    tokens: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)

    def content(self, index: int) -> tuple[int, int, bytes]:
        """(hash, parent's hash, token bytes) of a page, also of the last one, which may have fewer tokens."""
        parent = self.content(index - 1)[0] if index else ROOT
        tokens = packed(self.tokens[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS])
        return page_hash(parent, tokens), parent, tokens


class Model:
    """The naive model beside the ledger: what stands in each place of the memory, and who holds what."""

    def __init__(self, seed: int, eviction: EvictionName) -> None:
        self.rng = random.Random(seed)
        self.ledger = PageLedger(N_PAGES, make_eviction(eviction, N_PAGES))
        self.memory: defaultdict[int, list[int]] = defaultdict(lambda: [-1] * PAGE_TOKENS)
        self.branches: list[Branch] = []
        self.n_copies = 0

    def write(self, branch: Branch, tokens: list[int]) -> None:
        """One plan that writes these tokens at the end of a branch, as many as find pages."""
        for token in tokens:
            if len(branch.tokens) == len(branch.pages) * PAGE_TOKENS:
                page = self.ledger.allocate()
                if page is None:
                    break
                self.memory[page] = [-1] * PAGE_TOKENS
                branch.pages.append(page)
            self.memory[branch.pages[-1]][len(branch.tokens) % PAGE_TOKENS] = token
            branch.tokens.append(token)
            if len(branch.tokens) % PAGE_TOKENS == 0:
                self.ledger.seal(branch.pages[-1], *branch.content(len(branch.pages) - 1), is_planned=True)
        if branch.tokens:
            _, parent, last = branch.content(len(branch.pages) - 1)
            self.ledger.tails.add(branch.pages[-1], parent, last)
        self.send()

    def fork(self, branch: Branch, n: int) -> None:
        """A new branch with the first `n` tokens of another one: full pages are shared, the part of one is copied."""
        new = Branch(branch.tokens[:n])
        for index in range(n // PAGE_TOKENS):
            page = self.ledger.find(*branch.content(index))
            if page is None:
                break
            new.pages.append(page)
        n_found = len(new.pages) * PAGE_TOKENS
        wanted = packed(new.tokens[n_found : n_found + PAGE_TOKENS])
        new.tokens = new.tokens[:n_found]
        self.ledger.acquire(new.pages)
        parent = new.content(len(new.pages) - 1)[0] if new.pages else ROOT
        found = self.ledger.tails.find(parent, wanted)
        if found is not None and self.ledger.n_available > 1:
            source, n_tokens = found
            self.ledger.hold_copied(source)
            target = self.ledger.allocate()
            assert target is not None
            assert target != source
            self.memory[target] = [*self.memory[source][:n_tokens], *[-1] * (PAGE_TOKENS - n_tokens)]
            new.pages.append(target)
            new.tokens += branch.tokens[n_found : n_found + n_tokens]
            self.n_copies += 1
        self.branches.append(new)
        self.send()

    def free(self, branch: Branch) -> None:
        self.branches.remove(branch)
        self.ledger.release(branch.pages)

    def send(self) -> None:
        self.ledger.commit_plan()
        self.ledger.apply_plan()

    def check(self) -> None:
        self.ledger.audit([branch.pages for branch in self.branches])
        holders = Counter(page for branch in self.branches for page in branch.pages)
        assert self.ledger._holders == [holders[page] for page in range(N_PAGES)]
        assert self.ledger.statistics().held == len(holders)
        for branch in self.branches:
            held = [token for page in branch.pages for token in self.memory[page]]
            assert held[: len(branch.tokens)] == branch.tokens
        for page in range(N_PAGES):
            if page in self.ledger.tails:
                assert holders[page] or page in self.ledger._hash_of, "free pages have no tails"


@pytest.mark.parametrize("name", EvictionName)
def test_counts_and_contents_are_right_after_random_forks_writes_and_frees(name: EvictionName) -> None:
    model = Model(seed=1, eviction=name)
    for number in range(N_OPERATIONS):
        operation = model.rng.random()
        branch = model.rng.choice(model.branches) if model.branches else Branch()
        if len(model.branches) < 4 or operation < 0.05:
            model.branches.append(branch := Branch())
            model.write(branch, [model.rng.randrange(3) for _ in range(model.rng.randint(1, 40))])
        elif len(model.branches) < 25 and operation < 0.4:
            model.fork(branch, model.rng.randint(0, len(branch.tokens)))
        elif operation < 0.7:
            model.write(branch, [model.rng.randrange(3) for _ in range(model.rng.randint(1, 20))])
        else:
            model.free(branch)
        if number % 20 == 0:
            model.check()
    model.check()
    for branch in [*model.branches]:
        model.free(branch)
    assert model.ledger.n_available == N_PAGES
    assert model.n_copies > N_OPERATIONS // 20
