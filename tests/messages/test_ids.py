"""Names of actors: built, read, refused."""

from __future__ import annotations

import pytest

from messages.ids import ROLES, SUPERVISOR, actor_name, is_actor_name, mint_request_id, replica_of, role_of, seat_of, seed_of


@pytest.mark.parametrize(
    ("name", "role", "replica", "seat"),
    [
        (actor_name("worker", 0, 1), "worker", 0, "a"),
        (actor_name("worker", 12, 3, "a"), "worker", 12, "a"),
        (actor_name("worker", 12, 3, "b"), "worker", 12, "b"),
        (actor_name("scheduler", 7), "scheduler", 7, "a"),
        (SUPERVISOR, "supervisor", 0, "a"),
    ],
)
def test_the_parts_of_a_name(name: str, role: str, replica: int, seat: str) -> None:
    assert (role_of(name), replica_of(name), seat_of(name)) == (role, replica, seat)


def test_names_of_the_first_seat_are_written_without_it() -> None:
    assert actor_name("worker", 0, 1) == actor_name("worker", 0, 1, "a") == "worker/0.1"
    assert actor_name("worker", 0, 1, "b") == "worker/0.1b"


def test_seats_of_one_rank_have_different_names() -> None:
    names = {actor_name("worker", replica, rank, seat) for replica in range(12) for rank in range(12) for seat in "ab"}
    assert len(names) == 12 * 12 * 2


def test_every_name_that_is_built_is_a_name() -> None:
    names = [actor_name(role, index) for role in ROLES[1:-1] for index in (0, 1023)]
    names += [actor_name("worker", 1023, 63, seat) for seat in "ab"] + [SUPERVISOR, "operator/4f-12"]
    assert all(map(is_actor_name, names))
    assert not any(
        map(is_actor_name, ("supervisor/1", "cook/0", "gateway", "gateway/", "gateway/x", "worker/0.1c", "gateway/0/0"))
    )


def test_unknown_parts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"role: expected one of supervisor, .*, got 'cook'"):
        actor_name("cook", 0)
    with pytest.raises(ValueError, match=r"seat: expected one of a, b, got 'c'"):
        actor_name("worker", 0, 0, "c")


def test_the_supervisor_has_a_role() -> None:
    assert role_of(SUPERVISOR) in ROLES


def test_request_ids_differ_and_seeds_follow_them() -> None:
    first, second = mint_request_id(), mint_request_id()
    assert first != second
    assert seed_of(first) == seed_of(first) != seed_of(second)
    assert 0 <= seed_of(first) < 2**63
