"""A host tier whose places in use follow the load: it grows for contents that it has lost and that are wanted, gives back what
nobody asks for, and loses nothing that its rules would keep."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from actors.pages.host_ledger import Content
from actors.pages.seal_table import private_table
from actors.pages.sizing.sized_host_ledger import SizedHostLedger
from actors.pages.sizing.working_set import SizingRule
from messages.steps import PAGE_TOKENS
from tests.support.depth import examples

_QUIET_S = 600.0


def _content(number: int) -> Content:
    return 2 * number + 1001, 0, number.to_bytes(8, "little") * (PAGE_TOKENS // 2)


class _Tier:
    """A tier of 100 places that began with 10, and its clock."""

    def __init__(self, n_places: int = 100, n_least: int = 10, spare_share: float = 0.0) -> None:
        self.now_s = 0.0
        self.ledger = SizedHostLedger(private_table(1, n_places), SizingRule(_QUIET_S, spare_share), lambda: self.now_s)
        self.ledger.begin(n_least, is_new=True)

    def store(self, numbers: range) -> list[int | None]:
        return [self.ledger.store(_content(number)) for number in numbers]

    def ask(self, numbers: range) -> int:
        """A prompt wants these contents. Returns how many come back; the others are computed, and stored when they leave."""
        wanted = [_content(number) for number in numbers]
        self.ledger.missed(wanted)
        found = [content for content in wanted if self.ledger.find(content) is not None]
        self.ledger.pin(found)
        self.ledger.unpin(found)
        self.store(numbers)
        return len(found)

    def windows(self, n: int) -> list[int]:
        """Let so many windows pass. Returns the places that were given back."""
        given: list[int] = []
        for _ in range(n):
            self.now_s += _QUIET_S
            given += self.ledger.shrink()
        return given


def test_contents_that_come_once_do_not_let_it_grow() -> None:
    tier = _Tier()
    tier.store(range(500))
    assert tier.ledger.n_in_use == 10
    assert len(tier.ledger) == 10


def test_it_grows_by_a_place_for_each_content_that_it_has_lost_and_that_is_wanted() -> None:
    tier = _Tier()
    tier.ask(range(40))
    assert tier.ledger.n_in_use == 10
    tier.ask(range(40))
    tier.ask(range(40))
    assert tier.ledger.n_in_use == 40
    assert tier.ask(range(40)) == 40
    assert tier.ledger.n_in_use == 40, "nothing that is wanted is missing now"


def test_it_never_has_more_than_all_places() -> None:
    tier = _Tier(n_places=30)
    for _ in range(6):
        tier.ask(range(45))
    assert tier.ledger.n_in_use == 30


def test_what_nobody_asks_for_in_two_windows_goes_back() -> None:
    tier = _Tier()
    for _ in range(3):
        tier.ask(range(40))
    tier.ask(range(40))
    assert not tier.windows(1), "a window is not enough"
    given = tier.windows(2)
    assert len(given) == 30
    assert len(set(given)) == 30
    assert tier.ledger.n_in_use == len(tier.ledger) == 10
    assert len(tier.ledger.returned) == 90


def test_what_is_asked_for_stays_and_a_part_beside_it() -> None:
    tier = _Tier(spare_share=0.5)
    for _ in range(4):
        tier.ask(range(40))
    for _ in range(4):
        tier.windows(1)
        assert tier.ask(range(20)) == 20
    assert tier.ledger.n_in_use == 30


def test_a_return_after_it_has_shrunk_lets_it_grow_again() -> None:
    tier = _Tier()
    for _ in range(4):
        tier.ask(range(40))
    tier.windows(3)
    tier.ask(range(40))
    tier.ask(range(40))
    assert tier.ledger.n_in_use == 40
    assert tier.ask(range(40)) == 40


def test_places_that_loads_read_are_kept() -> None:
    tier = _Tier(n_least=1)
    tier.store(range(1))
    tier.ledger.pin([_content(0)])
    tier.store(range(1, 5))
    assert tier.ledger.n_in_use == 2, "with all places pinned it takes another"
    assert tier.ledger.find(_content(0)) is not None
    tier.windows(3)
    assert tier.ledger.find(_content(0)) is not None


def test_without_memory_it_stays_as_it_is_and_says_so_once() -> None:
    tier = _Tier()
    for _ in range(2):
        tier.ask(range(40))
    before, newest = tier.ledger.n_in_use, _content(39)
    place = tier.ledger.find(newest)
    assert place is not None
    assert tier.ledger.refused([place]) == [place]
    assert tier.ledger.note_short()
    assert not tier.ledger.note_short()
    assert tier.ledger.find(newest) is None
    assert tier.ledger.shrink() == [place], "ranks that have memory for it give that back"
    tier.ask(range(40))
    assert tier.ledger.n_in_use == before - 1
    tier.now_s += 11.0
    tier.ask(range(40))
    assert tier.ledger.n_in_use > before - 1, "it is tried again"
    assert not tier.ledger.note_short()
    tier.now_s += 600.0
    assert tier.ledger.note_short()


def test_an_old_refusal_harms_no_place_that_is_free_or_read() -> None:
    tier = _Tier()
    tier.store(range(3))
    (place,) = tier.ledger.pin([_content(0)])
    assert tier.ledger.refused([place, tier.ledger.returned[0]]) == []
    assert tier.ledger.n_in_use == 10


def test_a_reset_of_caches_forgets_everything_and_returns_no_place_twice() -> None:
    tier = _Tier()
    for _ in range(3):
        tier.ask(range(40))
    tier.ledger.clear()
    assert tier.ledger.n_in_use == 40
    places = tier.store(range(100, 140))
    assert len(set(places)) == 40
    assert not set(places) & set(tier.ledger.returned)


def test_a_new_ledger_keeps_what_it_adopts() -> None:
    tier = _Tier()
    for _ in range(3):
        tier.ask(range(25))
    table = tier.ledger._table
    successor = SizedHostLedger(table, SizingRule(_QUIET_S, 0.0), lambda: 0.0)
    successor.begin(10, is_new=True)
    assert successor.n_in_use == len(successor) == 25
    assert len(successor.returned) == 75


def test_without_a_least_size_all_places_are_in_use() -> None:
    tier = _Tier(n_least=0)
    assert tier.ledger.n_in_use == 100
    tier.windows(4)
    assert tier.ledger.n_in_use == 100


class _SizedTierMachine(RuleBasedStateMachine):
    """Any use of a small tier, as its owner may use it."""

    def __init__(self) -> None:
        super().__init__()
        self.tier = _Tier(n_places=12, n_least=3)
        self.pinned: list[list[Content]] = []
        self.reserved: list[tuple[int, Content]] = []

    @rule(number=st.integers(0, 30))
    def store(self, number: int) -> None:
        self.tier.store(range(number, number + 1))

    @rule(first=st.integers(0, 30), n=st.integers(1, 6))
    def want(self, first: int, n: int) -> None:
        self.tier.ledger.missed([_content(number) for number in range(first, first + n)])

    @rule(number=st.integers(0, 30))
    def pin(self, number: int) -> None:
        if self.tier.ledger.find(_content(number)) is not None:
            self.tier.ledger.pin([_content(number)])
            self.pinned.append([_content(number)])

    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        if self.pinned:
            self.tier.ledger.unpin(self.pinned.pop(data.draw(st.integers(0, len(self.pinned) - 1))))

    @rule(number=st.integers(40, 50))
    def reserve(self, number: int) -> None:
        if (place := self.tier.ledger.reserve(_content(number))) is not None:
            self.reserved.append((place, _content(number)))

    @rule(is_filled=st.booleans())
    def settle(self, is_filled: bool) -> None:
        if self.reserved:
            place, content = self.reserved.pop()
            self.tier.ledger.fill(place, content) if is_filled else self.tier.ledger.give_back(place)

    @rule(n=st.integers(0, 3))
    def shrink(self, n: int) -> None:
        self.tier.windows(n)

    @rule(places=st.sets(st.integers(0, 11), max_size=3))
    def refuse(self, places: set[int]) -> None:
        self.tier.ledger.refused(sorted(places))

    @invariant()
    def each_place_has_one_state(self) -> None:
        ledger = self.tier.ledger
        full, returned = list(ledger._entries.values()), ledger.returned
        free = [place for place in set(ledger._free) if ledger._is_free[place]]
        reserved = [place for place, _ in self.reserved]
        assert sorted([*full, *returned, *free, *reserved]) == list(range(12))

    @invariant()
    def what_loads_read_is_there(self) -> None:
        assert all(self.tier.ledger.find(content) is not None for contents in self.pinned for content in contents)


def test_the_states_of_places_hold_in_any_order_of_use() -> None:
    run_state_machine_as_test(_SizedTierMachine, settings=examples(100, stateful_step_count=40))
