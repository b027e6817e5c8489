"""The pages that are as they are, in the order of their uses, also for the process that adopts them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.pages.plain_pages import PlainPages

N_PLACES = 5
_ACTIONS = st.lists(st.tuples(st.sampled_from(("add", "remove", "touch")), st.integers(0, N_PLACES - 1)), max_size=60)


@given(_ACTIONS)
def test_they_are_in_the_order_of_their_last_use_and_stay_so_for_the_next_process(actions: list[tuple[str, int]]) -> None:
    used = np.zeros(N_PLACES, np.uint64)
    pages, expected = PlainPages(used), list[int]()
    for action, place in actions:
        getattr(pages, action)(place)
        is_here = place in expected
        expected = [other for other in expected if other != place]
        if action == "add" or (action == "touch" and is_here):
            expected.append(place)
        assert (place in pages) == (place in expected)
        assert len(pages) == len(expected)
    adopted = PlainPages(used)
    adopted.adopt(sorted(expected))
    assert list(pages) == list(adopted) == expected
    assert not expected or pages.coldest == expected[0]
