"""Every object in a union with a discriminator has its tag, also where the tag has a default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from tests.support.answers.allowed_values import is_allowed


class Cat(BaseModel):
    """A member whose tag has a default."""

    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    """Another one."""

    kind: Literal["dog"] = "dog"


PET: TypeAdapter[Any] = TypeAdapter(Annotated[Cat | Dog, Field(discriminator="kind")])


def test_an_object_without_its_tag_is_not_written() -> None:
    with pytest.raises(ValidationError, match="tag"):
        PET.validate_python({"lives": 3})
    for schema in (PET.json_schema(), _inline(PET.json_schema())):
        assert not is_allowed(schema, {"lives": 3})
        assert not is_allowed(schema, {})
        assert is_allowed(schema, {"kind": "cat", "lives": 3})
        assert is_allowed(schema, {"kind": "dog"})


def test_without_a_discriminator_nothing_is_required() -> None:
    assert is_allowed(TypeAdapter(list[Cat]).json_schema(), [{"lives": 3}, {}])


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its definitions in the places of the references to them."""
    definitions = schema.pop("$defs")
    return schema | {"oneOf": [definitions[one["$ref"].removeprefix("#/$defs/")] for one in schema["oneOf"]]}
