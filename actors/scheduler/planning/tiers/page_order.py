"""Which of some pages each place of a load is copied to. Pure."""

from __future__ import annotations


def beside_each_other(pages: list[int], places: list[int]) -> list[int]:
    """These pages in an order in which neighbours among the places, as far as possible, go to neighbours among the pages: a
    device copies such a run by one call. Args: [n] each, distinct."""
    ordered = [0] * len(places)
    for index, page in zip(sorted(range(len(places)), key=places.__getitem__), sorted(pages), strict=True):
        ordered[index] = page
    return ordered
