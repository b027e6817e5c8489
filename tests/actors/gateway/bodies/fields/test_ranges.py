"""Every API gives a sampling parameter or a term the range that its message declares, but for the differences named here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import inspect

from actors.gateway.bodies.response_body import ResponsesBody
from actors.gateway.bodies.schema import BatchBody, ChatBody, CompletionBody, GenerateBody
from actors.gateway.http.endpoints.anthropic import MessagesBody
from actors.gateway.http.endpoints.ollama import OllamaOptions
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms

OF_THE_API = frozenset(("seed", "top_k", "logprobs", "prompt_logprobs", "stop", "max_tokens"))  # names with another form there
BODIES = (ChatBody, CompletionBody, GenerateBody, BatchBody, ResponsesBody, MessagesBody, OllamaOptions)
NARROWER = {(MessagesBody, "temperature")}


def number_of(kind: type[msgspec.Struct], name: str) -> inspect.Type | None:
    """The number that a field is, with its range; None if it is none."""
    field: Any = next(field for field in msgspec.structs.fields(kind) if field.name == name)
    wanted: Any = inspect.type_info(field.type)
    parts = wanted.types if isinstance(wanted, inspect.UnionType) else (wanted,)
    plain = [part.type if isinstance(part, inspect.Metadata) else part for part in parts]
    return next((part for part in plain if isinstance(part, inspect.IntType | inspect.FloatType)), None)


@pytest.mark.parametrize(
    "body", [ChatBody, CompletionBody, GenerateBody, BatchBody, ResponsesBody, MessagesBody, OllamaOptions]
)
def test_a_field_has_the_range_of_its_message(body: type[msgspec.Struct]) -> None:
    declared = {name: kind for kind in (Sampling, Terms) for name in kind.__struct_fields__ if name not in OF_THE_API}
    names = [name for name in body.__struct_fields__ if name in declared and (body, name) not in NARROWER]
    assert "top_p" in names
    for name in names:
        assert number_of(body, name) == number_of(declared[name], name), name
