"""Tails: the page with most of the tokens is found, by later plans than the one that computes it, as long as it holds them."""

from __future__ import annotations

import numpy as np
import pytest

from actors.pages.chain_root import ROOT
from actors.pages.eviction.lru import LruEviction
from actors.pages.page_hash import page_hash
from actors.pages.page_ledger import PageLedger
from actors.pages.prompt_tails import PromptTails, n_equal_tokens


def tokens_of(*ids: int) -> bytes:
    return np.array(ids, "<i4").tobytes()


def sent(*tails: tuple[int, int, bytes]) -> PromptTails:
    """Tails (page, parent, tokens) of plans that are sent."""
    made = PromptTails()
    for tail in tails:
        made.add(*tail)
        made.end_plan()
    return made


@pytest.mark.parametrize(
    ("left", "right", "n"),
    [((), (1,), 0), ((1, 2), (1, 2), 2), ((1, 2, 3), (1, 2, 4, 5), 2), ((9,), (1,), 0), (range(20), range(20), 16)],
)
def test_equal_tokens_are_counted_from_the_first_one_on(left: tuple[int, ...], right: tuple[int, ...], n: int) -> None:
    assert n_equal_tokens(tokens_of(*left), tokens_of(*right)) == n_equal_tokens(tokens_of(*right), tokens_of(*left)) == n


def test_the_page_with_most_of_the_tokens_after_the_same_page_is_found() -> None:
    tails = sent((5, ROOT, tokens_of(1, 2)), (6, ROOT, tokens_of(1, 2, 3, 4)), (7, 99, tokens_of(1, 2, 3, 5)))
    assert tails.find(ROOT, tokens_of(1, 2, 3, 5)) == (6, 3)
    assert tails.find(99, tokens_of(1, 2, 3, 5)) == (7, 4)
    assert tails.find(ROOT, tokens_of(8, 2)) is None
    assert tails.find(98, tokens_of(1, 2)) is None


def test_a_tail_of_the_plan_that_is_being_made_is_for_the_next_one() -> None:
    tails = sent((5, ROOT, tokens_of(1, 2)))
    tails.add(6, ROOT, tokens_of(1, 2, 3))
    assert tails.find(ROOT, tokens_of(1, 2, 3)) == (5, 2)
    assert tails.is_planned(ROOT, tokens_of(1, 2, 3))
    assert not tails.is_planned(ROOT, tokens_of(1, 2, 3, 4)), "it has not all of them"
    tails.end_plan()
    assert tails.find(ROOT, tokens_of(1, 2, 3)) == (6, 3)
    assert not tails.is_planned(ROOT, tokens_of(1, 2, 3))


def test_a_page_has_one_tail_and_a_parent_few() -> None:
    tails = sent((5, ROOT, tokens_of(1, 2)), (5, 99, tokens_of(3, 4)))
    assert tails.find(ROOT, tokens_of(1, 2)) is None
    assert len(tails) == 1
    tails = sent(*((page, ROOT, tokens_of(page, 1)) for page in range(12)))
    assert [page for page in range(12) if page in tails] == list(range(4, 12)), "the oldest ones are forgotten"


def test_any_number_of_pages_may_have_the_same_tail_and_the_first_one_that_is_left_is_found() -> None:
    tails = sent(*((page, ROOT, tokens_of(1, 2)) for page in range(20)))
    for page in range(20):
        assert tails.find(ROOT, tokens_of(1, 2)) == (page, 2)
        tails.discard(page)
    assert not len(tails)


class Pages:
    """A ledger of four pages, and a page with a tail, which is the only one of its holder."""

    def __init__(self) -> None:
        self.ledger = PageLedger(4, LruEviction(4))
        page = self.ledger.allocate()
        assert page is not None
        self.page, self.tokens = page, tokens_of(*range(10))
        self.ledger.tails.add(page, ROOT, self.tokens)
        self.ledger.commit_plan()

    def is_found(self) -> bool:
        return self.ledger.tails.find(ROOT, self.tokens) == (self.page, 10)


def test_a_tail_is_lost_with_the_last_holder_of_its_page() -> None:
    pages = Pages()
    assert pages.is_found()
    pages.ledger.release([pages.page])
    assert not len(pages.ledger.tails)


def test_a_page_whose_whole_content_is_known_keeps_its_tail_until_it_is_evicted() -> None:
    pages, content = Pages(), tokens_of(*range(16))
    pages.ledger.seal(pages.page, page_hash(ROOT, content), ROOT, content, is_planned=True)
    pages.ledger.commit_plan()
    pages.ledger.release([pages.page])
    assert pages.is_found()
    for _ in range(4):
        pages.ledger.allocate()
    assert not len(pages.ledger.tails)


def test_lost_plans_may_have_written_over_any_tail() -> None:
    pages = Pages()
    pages.ledger.apply_plan()
    pages.ledger.drop_unapplied()
    assert not pages.is_found()


def test_a_copied_page_is_not_overwritten_by_the_plan_that_copies_it() -> None:
    pages = Pages()
    pages.ledger.hold_copied(pages.page)
    pages.ledger.release([pages.page])
    assert pages.page not in [pages.ledger.allocate() for _ in range(4)]
    assert pages.is_found(), "the same plan may copy it again"
    pages.ledger.commit_plan()
    assert pages.ledger.allocate() == pages.page
    assert not pages.is_found()
