"""The sampling parameters and terms as the fields that every generating body has. All is drawn from `Sampling` and `Terms`."""

from __future__ import annotations

from typing import Any, TypeVar, get_type_hints

import msgspec

from actors.gateway.bodies.fields.ranges import AnyInt, TopKOrOff
from messages.generation.sampling import Sampling
from messages.generation.terms import SERVER_TERMS, Terms

# `logprobs` and the limit of tokens differ from API to API, as do stop strings (`stop_sequences`); a trace id comes as a
# header, a grammar in one of several fields.
_NOT_HERE = SERVER_TERMS | {"logprobs", "prompt_logprobs", "max_tokens", "stop", "stop_tokens", "trace_id", "grammar"}
_OTHER_FORMS = {"top_k": TopKOrOff, "seed": AnyInt, "stop_token_ids": list[AnyInt]}  # the last one is called so in vLLM


def _kinds_of(message: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(message, include_extras=True)
    return {name: kind for name, kind in hints.items() if name not in _NOT_HERE}


SAMPLING, TERMS = tuple(_kinds_of(Sampling)), tuple(_kinds_of(Terms))  # names that fields and messages share
_FIELDS = _kinds_of(Sampling) | _kinds_of(Terms) | _OTHER_FORMS
DEFAULTS: dict[str, Any] = {
    name: getattr(part, name) for part in (Sampling(), Terms()) for name in _FIELDS if hasattr(part, name)
}
S = TypeVar("S", bound=msgspec.Struct)


def with_offered_fields(base: type[S]) -> type[S]:
    """A struct with the fields of `base` and, after them, these, each with its range, or None for the default."""
    fields = [(name, kind | None, None) for name, kind in _FIELDS.items()]
    made: Any = msgspec.defstruct(
        "_" + base.__name__, fields, bases=(base,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    return made


def offered_fields(body: msgspec.Struct) -> dict[str, Any]:
    """What a client has given of these fields, by name. `body`: one made from `with_offered_fields`."""
    return {name: value for name in _FIELDS if (value := getattr(body, name)) is not None}
