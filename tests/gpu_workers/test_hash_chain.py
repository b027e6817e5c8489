"""The two forms of the next id that is allowed agree."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.hash_chain import next_allowed, next_free

_VOCABULARY = 7
_IDS = st.integers(0, _VOCABULARY - 1)


@given(token=_IDS, banned=st.sets(_IDS))
def test_the_next_id_that_is_free_is_the_next_one_that_is_allowed(token: int, banned: set[int]) -> None:
    is_banned = np.isin(np.arange(_VOCABULARY), sorted(banned))
    assert next_free(token, is_banned) == next_allowed(token, _VOCABULARY, banned)
