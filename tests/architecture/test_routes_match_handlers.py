"""The table of routes against the code: each actor handles exactly what may be said to it."""

from __future__ import annotations

import ast

import pytest

from messages.child import LIFECYCLE_KINDS
from messages.ids import ROLES
from messages.routes import CHILDREN, ROUTE_BY_KIND, ROUTES, received_by
from tests.support.architecture.source_tree import SourceFile, product_files

OUTSIDE_OF_ACTORS = ("worker", "embedder")  # they lie in gpu_workers, with torch
ACTORS = [role for role in CHILDREN if role not in OUTSIDE_OF_ACTORS]


def handled_kinds(folder: str) -> set[str]:
    """The classes that stand as keys in the dict that a `handlers` method of this actor folder returns."""
    kinds: set[str] = set()
    for file in product_files():
        if file.path.startswith(f"actors/{folder}/"):
            kinds |= _keys_of_handlers(file)
    return kinds


def _keys_of_handlers(file: SourceFile) -> set[str]:
    methods = [node for node in file.nodes if isinstance(node, ast.FunctionDef) and node.name == "handlers"]
    dicts = [node for method in methods for node in ast.walk(method) if isinstance(node, ast.Dict)]
    return {ast.unparse(key).rpartition(".")[2] for table in dicts for key in table.keys if key is not None}


@pytest.mark.parametrize("role", ACTORS)
def test_an_actor_handles_exactly_what_may_be_said_to_it(role: str) -> None:
    expected = {kind.__name__ for kind in received_by(role) - LIFECYCLE_KINDS}
    assert handled_kinds(role) == expected


def test_the_worker_takes_exactly_what_may_be_said_to_it() -> None:
    moves = ("MovePages", "MoveDiskPages", "FindDiskPages", "ExchangePages", "ReturnPages", "ReturnPlaces")
    expected = {ROUTE_BY_KIND[name].kind for name in ("Reset", "Plan", *moves, "PrepareGrammar")}
    assert received_by("worker") - LIFECYCLE_KINDS == expected


def test_the_embedder_takes_exactly_what_may_be_said_to_it() -> None:
    assert received_by("embedder") - LIFECYCLE_KINDS == {ROUTE_BY_KIND["Embed"].kind}


def test_every_kind_stands_in_the_table_once() -> None:
    assert len(ROUTE_BY_KIND) == len(ROUTES)


def test_every_kind_of_an_internal_message_has_a_route() -> None:
    from messages import drafts, embedding, steps
    from messages.caches import disk_moves, exchange, page_moves, prefixes, similar
    from messages.generation import replica_state, sequences
    from messages.lifecycle import lifecycle, tree
    from messages.wire.message import Message

    for module in (
        lifecycle,
        tree,
        sequences,
        replica_state,
        steps,
        prefixes,
        similar,
        page_moves,
        disk_moves,
        exchange,
        drafts,
        embedding,
    ):
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, Message) and thing.__module__ == module.__name__:
                assert thing.__name__ in ROUTE_BY_KIND, f"{module.__name__}.{thing.__name__} has no route"


def test_routes_name_known_roles() -> None:
    for route in ROUTES:
        assert set(route.senders) | set(route.receivers) <= set(ROLES)
