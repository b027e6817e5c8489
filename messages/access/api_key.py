"""API keys: what a client shows, and what a server keeps of it. Pure, but for the randomness of new keys.

A key is `tg-ID-SECRET`. The id names it in files, logs and commands; it is no secret. Of the secret, 256 random bits, a server
keeps a scrypt digest only: who reads the file of keys cannot use them.
"""

from __future__ import annotations

import hmac
import re
import secrets
from enum import StrEnum
from hashlib import scrypt
from typing import Annotated

import msgspec

TENANT_RULE = "1 to 64 letters, digits, dots, hyphens or underscores"
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY = re.compile(r"tg-([0-9a-f]{12})-[A-Za-z0-9_-]{43}")
_ID_BYTES, _SECRET_BYTES, _SALT_BYTES, _DIGEST_BYTES = 6, 32, 16, 32
# Nobody can guess 256 random bits, so the digest may be cheap: 2 MiB of memory and about 5 ms.
_SCRYPT = {"n": 1 << 11, "r": 8, "p": 1, "dklen": _DIGEST_BYTES}


class Role(StrEnum):
    """What the holder of a key may do."""

    METRICS = "metrics"  # read health and metrics of the whole server, and nothing else
    USER = "user"  # ask for answers
    ADMIN = "admin"  # also what is the operator's, such as a reset of caches


class KeyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server keeps of a key. Times are Unix seconds."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{12}$")]
    tenant: Annotated[str, msgspec.Meta(pattern=f"^{_TENANT.pattern}$")]
    role: Role
    salt: Annotated[bytes, msgspec.Meta(min_length=_SALT_BYTES, max_length=_SALT_BYTES)]
    digest: Annotated[bytes, msgspec.Meta(min_length=_DIGEST_BYTES, max_length=_DIGEST_BYTES)]
    created_s: float
    ends_s: float | None = None  # from then on it is refused; None: never

    def is_valid(self, now_s: float) -> bool:
        """True if the key may be used at this time."""
        return self.ends_s is None or now_s < self.ends_s


def new_key(tenant: str, role: Role, now_s: float) -> tuple[str, KeyRecord]:
    """A new key as its holder gets it, and what is kept of it. Raises: ValueError for a name that no tenant can have."""
    if not _TENANT.fullmatch(tenant):
        raise ValueError(f"tenant: expected {TENANT_RULE}, got {tenant!r}")
    key_id, salt = secrets.token_hex(_ID_BYTES), secrets.token_bytes(_SALT_BYTES)
    text = f"tg-{key_id}-{secrets.token_urlsafe(_SECRET_BYTES)}"
    return text, KeyRecord(key_id, tenant, role, salt, _digest(text, salt), now_s)


def key_id_of(text: str) -> str:
    """The id in the text of a key; "" if it is no key."""
    found = _KEY.fullmatch(text)
    return found[1] if found else ""


def is_key_of(record: KeyRecord, text: str) -> bool:
    """True if this is the text of the key. Takes about 5 ms, whatever the answer is."""
    return hmac.compare_digest(_digest(text, record.salt), record.digest)


def _digest(text: str, salt: bytes) -> bytes:
    return scrypt(text.encode(), salt=salt, **_SCRYPT)
