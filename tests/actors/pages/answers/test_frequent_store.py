"""What stays within a bound of bytes: values that are asked for often, whatever comes once."""

from __future__ import annotations

from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from actors.pages.answers.frequent_store import FrequentStore

_SIZE = 1000


def hash_of(key: int) -> int:
    return int.from_bytes(blake2b(key.to_bytes(8, "little"), digest_size=8).digest(), "little")


def asked(store: FrequentStore[int, int], key: int, n_bytes: int = _SIZE) -> bool:
    """A request: the value is used, or else computed and put in. Returns whether it was there."""
    store.ask(hash_of(key))
    if key in store:
        store.use(key)
        return True
    store.put(key, key, n_bytes, hash_of(key))
    return False


def test_hot_values_stay_when_a_burst_comes_once() -> None:
    store: FrequentStore[int, int] = FrequentStore(100 * _SIZE)
    for _ in range(4):
        for key in range(60):
            asked(store, key)
    for key in range(1000, 4000):
        asked(store, key)
    assert sum(key in store for key in range(60)) >= 57
    assert store.n_bytes <= 100 * _SIZE


def test_a_new_load_takes_the_place_of_an_old_one() -> None:
    store: FrequentStore[int, int] = FrequentStore(100 * _SIZE)
    for _ in range(8):
        for key in range(60):
            asked(store, key)
    found = [sum(asked(store, key) for key in range(500, 560)) for _ in range(400)]
    assert found[-1] == 60, "what was asked for long ago counts less"


def test_nothing_leaves_before_the_bound_is_reached() -> None:
    store: FrequentStore[int, int] = FrequentStore(100 * _SIZE)
    assert [store.put(key, key, _SIZE, hash_of(key)) for key in range(100)] == [[]] * 100
    assert store.put(100, 100, _SIZE, hash_of(100)) == [(0, 0)]


def test_a_large_value_takes_the_place_of_several_small_ones() -> None:
    store: FrequentStore[int, int] = FrequentStore(100 * _SIZE)
    for key in range(100):
        store.put(key, key, _SIZE, hash_of(key))
    store.ask(hash_of(200))
    left = store.put(200, 200, 12 * _SIZE, hash_of(200))
    assert len(left) == 12
    assert 200 in store


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 600), st.sampled_from(["put", "use", "pop"])), max_size=120))
def test_the_bytes_are_those_of_what_is_there(steps: list[tuple[int, int, str]]) -> None:
    store, sizes = FrequentStore[int, int](5000), dict[int, int]()
    for key, n_bytes, what in steps:
        store.ask(hash_of(key))
        match what:
            case "put":
                sizes[key] = n_bytes
                for gone, _ in store.put(key, key, n_bytes, hash_of(key)):
                    del sizes[gone]
            case "use" if key in sizes:
                store.use(key)
            case "pop" if key in sizes:
                store.pop(key)
                del sizes[key]
            case _:
                pass
        assert {key: store.get(key) for key in sizes} == dict(store)
        assert (len(store), store.n_bytes) == (len(sizes), sum(sizes.values()))
        assert store.n_bytes <= store.max_bytes


_SHARES = {b"a": 0.2, b"b": 0.3, b"c": 0.5}


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 400), st.sampled_from(["put", "put", "use"])), max_size=150))
def test_under_random_traffic_no_owner_within_its_part_loses_anything_to_others(steps: list[tuple[int, int, str]]) -> None:
    store, sizes = FrequentStore[int, int](5000), dict[int, int]()
    for owner, share in _SHARES.items():
        store.shares.note(owner, share)
    owners = list(_SHARES)

    def bytes_of(owner: bytes) -> int:
        return sum(size for key, size in sizes.items() if owners[key % 3] == owner)

    for key, n_bytes, what in steps:
        store.ask(hash_of(key))
        if what == "use" and key in store:
            store.use(key)
        if what == "put":
            putter = owners[key % 3]
            sizes[key] = n_bytes
            before = {owner: bytes_of(owner) for owner in owners}
            for gone, _ in store.put(key, key, n_bytes, hash_of(key), putter):
                loser = owners[gone % 3]
                assert bytes_of(loser) > _SHARES[loser] * 5000, "what leaves is of one that has more than its part"
                del sizes[gone]
            for owner in owners:
                assert bytes_of(owner) >= min(before[owner], _SHARES[owner] * 5000 - 400)
        assert store.n_bytes == sum(sizes.values()) <= 5000


def test_a_flood_of_one_owner_leaves_the_values_of_another() -> None:
    store: FrequentStore[int, int] = FrequentStore(100 * _SIZE)
    store.shares.note(b"flood", 0.5)
    for key in range(20):
        store.put(key, key, _SIZE, hash_of(key), b"quiet")
    for key in range(100, 400):
        for _ in range(5):
            store.ask(hash_of(key))
        store.put(key, key, _SIZE, hash_of(key), b"flood")
    assert all(key in store for key in range(20))
    assert store.n_share_evicted == 300 - 80
    assert [key for key in range(100, 400) if key in store] == list(range(320, 400)), "of one owner the oldest leave"
