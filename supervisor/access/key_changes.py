"""What a command does to the keys of a server. Pure: each change takes all keys and returns all keys."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from messages.access.api_key import KeyRecord, Role, key_id_of, new_key

_KEPT_S = 86_400.0 * 30  # ended keys are listed for this time
_SHOWN = 12  # characters of a text that is no id, as many as an id has: it may be a part of a key


class UnknownKey(ValueError):
    """No key that may still be used has this id."""


def id_given(text: str) -> str:
    """The id that an operator means: of a whole key the id in it, of another text that is too long for an id its beginning, so
    that no secret is printed or logged."""
    return key_id_of(text) or (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def with_new(keys: Iterable[KeyRecord], tenant: str, role: Role, now_s: float) -> tuple[str, list[KeyRecord]]:
    """The text of a new key, and all keys with it. Raises: ValueError for a name that no tenant can have."""
    text, record = new_key(tenant, role, now_s)
    return text, [*_without_old(keys, now_s), record]


def with_ended(keys: Iterable[KeyRecord], key_id: str, now_s: float, grace_s: float = 0.0) -> list[KeyRecord]:
    """All keys, of which one ends after `grace_s`. Raises: UnknownKey."""
    kept = _without_old(keys, now_s)
    known = _usable(kept, key_id, now_s)
    ended = msgspec.structs.replace(known, ends_s=min(now_s + grace_s, known.ends_s or now_s + grace_s))
    return [ended if one is known else one for one in kept]


def with_rotated(keys: Iterable[KeyRecord], key_id: str, now_s: float, grace_s: float) -> tuple[str, list[KeyRecord]]:
    """The text of a new key of the same tenant and role, and all keys with it; the old one ends after `grace_s`.
    Raises: UnknownKey."""
    ended = with_ended(keys, key_id, now_s, grace_s)
    old = next(one for one in ended if one.id == key_id)
    return with_new(ended, old.tenant, old.role, now_s)


def _usable(keys: Iterable[KeyRecord], key_id: str, now_s: float) -> KeyRecord:
    for one in keys:
        if one.id == key_id and one.is_valid(now_s):
            return one
    raise UnknownKey(f"expected the id of a key that may be used, got {key_id}; supervisor keys list shows them")


def _without_old(keys: Iterable[KeyRecord], now_s: float) -> list[KeyRecord]:
    return [one for one in keys if one.ends_s is None or one.ends_s + _KEPT_S > now_s]
