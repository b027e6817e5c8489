"""Values that use everything: what `Sampling` and the terms of requests say with the examples of their declarations."""

from __future__ import annotations

from typing import TypeVar, get_type_hints

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def example_of(kind: type[S]) -> S:
    """A value of this struct with every field in use that has an example in its declaration (`msgspec.Meta`); the others have
    their defaults."""
    hints = get_type_hints(kind, include_extras=True)
    metas = {name: getattr(hints[name], "__metadata__", ()) for name in kind.__struct_fields__}
    return kind(**{name: meta[0].examples[0] for name, meta in metas.items() if meta and meta[0].examples})
