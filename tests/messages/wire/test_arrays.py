"""Which fields of messages are arrays."""

from __future__ import annotations

from typing import Annotated, get_args, get_origin, get_type_hints

import msgspec
import pytest

from messages import public
from messages.routes import INTERNAL_KINDS
from messages.wire.arrays import ArrayOf, Int32s, UInt64s, array_fields


class Base(msgspec.Struct):
    ids: Int32s
    name: str


class Derived(Base):
    hashes: UInt64s
    ids: str  # pyright: ignore[reportIncompatibleVariableOverride] no array here


@pytest.mark.parametrize(
    "kind",
    [*INTERNAL_KINDS, *get_args(public.ClientMessage), *get_args(public.GatewayMessage), Base],
    ids=lambda kind: kind.__name__,
)
def test_array_fields_are_those_whose_evaluated_annotation_says_so(kind: type) -> None:
    wanted = {}
    for field, hint in get_type_hints(kind, include_extras=True).items():
        for mark in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
            if isinstance(mark, ArrayOf):
                wanted[field] = mark.dtype
    assert {field: dtype.str for field, dtype, _ in array_fields(kind)} == wanted


def test_a_field_of_a_base_that_is_declared_anew_is_what_it_is_then() -> None:
    assert [field for field, _, _ in array_fields(Derived)] == ["hashes"]
