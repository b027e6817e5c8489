"""Which other replica has more of a prompt; and the book of attempts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.dispatch.routing import AttemptBook, holder_for
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.text.detokenizer import NoText
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms

NAMES = ["scheduler/0", "scheduler/1", "scheduler/2"]
PAGES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 50))


@given(st.sampled_from(NAMES), PAGES)
def test_a_holder_has_more_than_the_chosen_one_and_nobody_has_more_than_it(name: str, pages: dict[str, int]) -> None:
    holder, most = holder_for(name, pages), max(pages.values(), default=0)
    if holder is None:
        assert pages.get(name, 0) == most
    else:
        assert pages[f"scheduler/{holder.replica}"] == holder.pages == most > pages.get(name, 0)


def test_a_dead_scheduler_gives_its_sequences_back_in_order() -> None:
    prompt = np.array([1], "<i4").tobytes()
    terms = Terms(max_tokens=4)
    spec = RequestSpec(request="r", api="generate", created_s=0.0, prompts=[prompt], sampling=Sampling(), terms=terms, n=5)
    sequences = Request(1, spec, lambda prompt: NoText(), 0.0).sequences
    book = AttemptBook(incarnation=3)
    attempts = [book.open(s, NAMES[s.index % 2]) for s in sequences]
    assert len(set(attempts)) == 5
    assert book.loads(NAMES) == {"scheduler/0": 3, "scheduler/1": 2, "scheduler/2": 0}
    book.close(sequences[2])
    assert book.close_all_of("scheduler/0") == [sequences[0], sequences[4]]
    assert [book.find(a) for a in attempts] == [None, sequences[1], None, sequences[3], None]
    assert book.loads(NAMES) == {"scheduler/0": 0, "scheduler/1": 2, "scheduler/2": 0}
    assert book.close_all_of("scheduler/0") == []
    assert len(book) == 2
    assert book.open(sequences[0], "scheduler/1") not in attempts
    assert AttemptBook(incarnation=4).open(sequences[2], "scheduler/1") > max(attempts), "lives share no numbers"
