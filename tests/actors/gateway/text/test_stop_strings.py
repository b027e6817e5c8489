"""Stop strings against an oracle that reads one character at a time."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from actors.gateway.text.stop_strings import StopStringFilter

TEXTS = st.text(alphabet="abc é👩", max_size=30)
STOPS = st.lists(st.text(alphabet="abc é", min_size=1, max_size=4), min_size=1, max_size=4)


def oracle(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text up to where the first complete stop string begins; was there one?"""
    for end in range(1, len(text) + 1):
        ends_here = [s for s in stops if text[:end].endswith(s)]
        if ends_here:
            return text[: end - max(map(len, ends_here))], True
    return text, False


def cut(text: str, cuts: list[int]) -> list[str]:
    borders = sorted({0, len(text), *(c % (len(text) + 1) for c in cuts)})
    return [text[a:b] for a, b in pairwise(borders)]


@given(TEXTS, STOPS, st.lists(st.integers(0, 1000), max_size=30))
@example("aab", ["ab", "b"], [1, 2])
@example("abcab", ["bca", "c"], [2])
def test_every_cut_shows_what_the_oracle_shows(text: str, stops: list[str], cuts: list[int]) -> None:
    text_filter, shown = StopStringFilter(stops), []
    for piece in cut(text, cuts):
        shown.append(text_filter.push(piece))
        so_far = "".join(shown)
        assert oracle(text, stops)[0].startswith(so_far), "what was shown is never taken back"
        assert not any(s in so_far for s in stops)
    is_met = text_filter.is_matched
    assert ("".join(shown) + text_filter.flush(), is_met) == oracle(text, stops)
    keeping = StopStringFilter(stops, keeps_match=True)
    kept = "".join(keeping.push(piece) for piece in cut(text, cuts)) + keeping.flush()
    assert kept == oracle(text, stops)[0] + text_filter.matched
    assert text.startswith(kept)


@given(TEXTS, STOPS)
def test_nothing_is_held_back_that_cannot_become_a_stop_string(text: str, stops: list[str]) -> None:
    text_filter = StopStringFilter(stops)
    shown = text_filter.push(text)
    held = "" if text_filter.is_matched else text[len(shown) :]
    assert not held or any(s.startswith(held) for s in stops)


def test_after_a_stop_string_nothing_more_is_shown() -> None:
    text_filter = StopStringFilter(["stop"])
    assert text_filter.push("a stop b") == "a "
    assert (text_filter.push("c"), text_filter.flush(), text_filter.is_matched) == ("", "", True)


def test_without_stop_strings_everything_passes() -> None:
    text_filter = StopStringFilter([])
    assert (text_filter.push("anything"), text_filter.flush(), text_filter.is_matched) == ("anything", "", False)
