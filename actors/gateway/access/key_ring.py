"""The API keys that a gateway knows, and who holds which.

The first use of a key costs one scrypt digest, in a thread, however many calls show it meanwhile. After that a keyed digest of
its text is remembered, and a use costs 2 µs. The file of keys is looked at once a second, so a revoked key is refused within a
second, and where a key is not known, so a new one can be used at once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

import msgspec
import structlog

from actors.gateway.admission.caller import caller_of_tenant
from actors.gateway.requests.refusals import Refusal
from messages.access.api_key import KeyRecord, Role, is_key_of, key_id_of
from messages.access.followed_files import FollowedFiles
from messages.access.key_file import read_keys
from messages.errors import ConfigError

_MOST_CHECKS = 256  # digests that are computed or waited for; more wait at their clients
_MOST_CHECKS_OF_ONE = 4  # of texts with the id of one key, all but one of which are wrong: others do not wait for more
_MOST_REMEMBERED = 65_536
_UNREAD_S = 5.0  # after which a client may try again while the file cannot be read
_METRICS_ONLY = "Authorization: expected an API key of the role user or admin, got one of the role metrics"
_EXPECTED = "Authorization: expected Bearer and an API key of this server"


class KeyHolder(msgspec.Struct, frozen=True):
    """Who has shown a key. `caller`: the digest of the tenant, as requests carry it."""

    key_id: str
    tenant: str
    caller: bytes
    role: Role

    @property
    def is_admin(self) -> bool:
        """True if it opens what is the operator's."""
        return self.role is Role.ADMIN

    @property
    def sees_all(self) -> bool:
        """True if it shows the metrics of all tenants."""
        return self.role is not Role.USER

    def check_may_ask(self) -> None:
        """Check that it opens more than health and metrics. Raises: Refusal."""
        if self.role is Role.METRICS:
            raise Refusal("operator_only", _METRICS_ONLY, field="Authorization")


class KeyRing:
    """The keys of one file. `wall_s`: Unix time."""

    def __init__(self, path: Path, wall_s: Callable[[], float]) -> None:
        """With a file that cannot be read nobody is let in until it can, and clients are told to come back."""
        self._path, self._wall_s = path, wall_s
        self._records: dict[str, KeyRecord] = {}  # by id
        self._tenants: dict[bytes, str] = {}  # by caller
        self._proven: dict[bytes, KeyRecord] = {}  # by the digest of the text of a key that was checked
        self._secret = secrets.token_bytes(32)  # of these digests: they are of no use elsewhere
        self._threads = ThreadPoolExecutor(1, "key-check")
        self._checks: dict[bytes, tuple[str, asyncio.Future[bool]]] = {}  # id and result, by the digest of the text
        self._files = FollowedFiles([path])
        self._has_read = False
        self.refresh()

    def close(self) -> None:
        """End the thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def refresh(self) -> None:
        """Read the file again if it has changed. One that cannot be read leaves the keys as they are."""
        if not self._files.are_due():
            return
        try:
            self._take(read_keys(self._path))
        except ConfigError as error:
            if not self._files.were_not_read(error):
                return
            said = "API keys not read again, the old ones count" if self._has_read else "API keys not read, nobody is let in"
            structlog.get_logger().error(said, reason=str(error))
            return
        self._files.were_read()

    def tenant_of(self, caller: bytes) -> str:
        """The tenant with this digest; "" for one whose keys are not in the file any more. The file is looked at for an unknown
        one: its first key may have been made just now, and shown to another gateway."""
        if caller and caller not in self._tenants:
            self.refresh()
        return self._tenants.get(caller, "")

    def known(self, text: str) -> KeyHolder | None:
        """The holder of a key that was checked before; None: `holder_of` has to check it."""
        record = self._proven.get(self._digest(text))
        if record is None or self._records.get(record.id) != record or not record.is_valid(self._wall_s()):
            return None
        return KeyHolder(record.id, record.tenant, caller_of_tenant(record.tenant), record.role)

    async def holder_of(self, text: str, no_key: str = "none") -> KeyHolder:
        """The holder of a key. `no_key`: what came in place of an empty text. Raises: Refusal for one that is missing, unknown,
        revoked or expired, and for all while the file has never been read: then nobody knows whether a key is good."""
        if (holder := self.known(text)) is not None:
            return holder
        record = self._records.get(key_id_of(text))
        if record is None:  # it may have been made just now
            self.refresh()
            record = self._records.get(key_id_of(text))
        if not self._has_read and text:
            raise Refusal("unavailable", "the server cannot read its API keys now", retry_after_s=_UNREAD_S)
        if record is None or not record.is_valid(self._wall_s()):
            raise _refused(text, no_key)
        if not await asyncio.shield(self._check_of(record, text)):  # other calls may wait for it
            raise _refused(text)
        if len(self._proven) >= _MOST_REMEMBERED:
            self._proven.clear()
        self._proven[self._digest(text)] = record
        holder = self.known(text)
        if holder is None:  # it was revoked meanwhile
            raise _refused(text)
        return holder

    def _check_of(self, record: KeyRecord, text: str) -> asyncio.Future[bool]:
        """The check of a text that shows the id of this record: one that is under way, or a new one. Raises: Refusal."""
        digest = self._digest(text)
        if (known := self._checks.get(digest)) is not None:
            return known[1]
        n_all, n_of_one = len(self._checks), sum(key_id == record.id for key_id, _ in self._checks.values())
        for n, most, which in ((n_of_one, _MOST_CHECKS_OF_ONE, f"keys with the id {record.id}"), (n_all, _MOST_CHECKS, "keys")):
            if n >= most:
                what = f"at most {most} {which} that are checked for the first time now"
                detail, limit = f"Authorization: expected {what}, got {n + 1}", f"key_checks={most}"
                raise Refusal("overloaded", detail, retry_after_s=1.0, limit=limit)
        check = asyncio.get_running_loop().run_in_executor(self._threads, is_key_of, record, text)
        self._checks[digest] = record.id, check
        check.add_done_callback(lambda _: self._checks.pop(digest))
        return check

    def _take(self, keys: tuple[KeyRecord, ...]) -> None:
        self._has_read = True
        self._records = {record.id: record for record in keys}
        self._tenants = {caller_of_tenant(record.tenant): record.tenant for record in keys}
        self._proven = {digest: one for digest, one in self._proven.items() if self._records.get(one.id) == one}

    def _digest(self, text: str) -> bytes:
        return blake2b(text.encode(), key=self._secret, digest_size=16).digest()


def _refused(text: str, no_key: str = "none") -> Refusal:
    """The refusal of a key. It names the id at most, never the secret."""
    key_id = key_id_of(text)
    got = f"the key {key_id}, which is unknown, wrong, revoked or expired" if key_id else "no such key" if text else no_key
    return Refusal("invalid_api_key", f"{_EXPECTED}, got {got}", field="Authorization")
