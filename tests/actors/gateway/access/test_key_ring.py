"""The keys that a gateway knows: who is let in, and how it follows its file."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from actors.gateway.access import key_ring
from actors.gateway.access.key_ring import KeyRing
from actors.gateway.admission.caller import caller_of_tenant
from actors.gateway.requests.refusals import Refusal
from messages.access.api_key import KeyRecord, Role, is_key_of, new_key
from messages.access.key_file import change_keys


class Keys:
    """A file with the keys of two tenants, and a ring that reads it. `now_s`: the clock of the ring."""

    def __init__(self, path: Path) -> None:
        self.path, self.now_s = path, 100.0
        self.mine, self.my_record = new_key("me", Role.USER, 1.0)
        self.yours, self.your_record = new_key("you", Role.ADMIN, 1.0)
        self.write([self.my_record, self.your_record])
        self.ring = KeyRing(path, lambda: self.now_s)

    def write(self, keys: Iterable[KeyRecord]) -> None:
        """Replace all keys."""
        change_keys(self.path, lambda old: list(keys))


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    made = Keys(tmp_path / "api-keys.json")
    yield made
    made.ring.close()


async def refused(ring: KeyRing, text: str) -> str:
    """The words with which a key is refused."""
    with pytest.raises(Refusal) as refusal:
        await ring.holder_of(text)
    assert (refusal.value.status, refusal.value.fine_code) == (401, "invalid_api_key")
    return refusal.value.detail


async def test_a_holder_is_let_in_and_known_from_then_on(keys: Keys) -> None:
    assert keys.ring.known(keys.mine) is None
    holder = await keys.ring.holder_of(keys.mine)
    assert (holder.tenant, holder.is_admin, holder.key_id) == ("me", False, keys.my_record.id)
    assert keys.ring.known(keys.mine) == holder
    other = await keys.ring.holder_of(keys.yours)
    assert other.is_admin
    assert other.caller != holder.caller


async def test_two_keys_of_a_tenant_are_one_caller(keys: Keys) -> None:
    second, record = new_key("me", Role.USER, 1.0)
    keys.write([keys.my_record, record])
    keys.ring.refresh()
    assert (await keys.ring.holder_of(second)).caller == (await keys.ring.holder_of(keys.mine)).caller


async def test_what_is_refused_says_why_and_never_the_secret(keys: Keys) -> None:
    wrong = keys.mine[:-4] + "AAAA"
    assert await refused(keys.ring, "") == "Authorization: expected Bearer and an API key of this server, got none"
    assert "got no such key" in await refused(keys.ring, "sk-1234567")
    said = await refused(keys.ring, wrong)
    assert f"the key {keys.my_record.id}, which is unknown, wrong, revoked or expired" in said
    assert wrong[20:] not in said
    assert keys.ring.known(wrong) is None


async def test_a_new_key_can_be_used_at_once(keys: Keys) -> None:
    text, record = new_key("new", Role.USER, 1.0)
    keys.write([keys.my_record, record])
    assert (await keys.ring.holder_of(text)).tenant == "new"


async def test_a_revoked_key_is_refused_when_the_file_has_changed(keys: Keys) -> None:
    await keys.ring.holder_of(keys.mine)
    keys.write([msgspec.structs.replace(keys.my_record, ends_s=50.0), keys.your_record])
    keys.ring.refresh()
    assert keys.ring.known(keys.mine) is None
    await refused(keys.ring, keys.mine)


async def test_a_key_ends_by_the_clock(keys: Keys) -> None:
    keys.write([msgspec.structs.replace(keys.my_record, ends_s=200.0)])
    keys.ring.refresh()
    await keys.ring.holder_of(keys.mine)
    keys.now_s = 200.0
    assert keys.ring.known(keys.mine) is None
    await refused(keys.ring, keys.mine)


async def test_a_damaged_file_leaves_the_keys_as_they_are(keys: Keys) -> None:
    await keys.ring.holder_of(keys.mine)
    keys.path.write_bytes(b"damaged")
    keys.ring.refresh()
    assert keys.ring.known(keys.mine) is not None
    keys.path.unlink()
    keys.write([keys.your_record])
    keys.ring.refresh()
    assert keys.ring.known(keys.mine) is None


async def test_a_gateway_whose_file_is_damaged_lets_nobody_in_until_it_is_mended(keys: Keys) -> None:
    whole = keys.path.read_bytes()
    keys.path.write_bytes(b"damaged")
    ring = KeyRing(keys.path, lambda: 100.0)
    for text in (keys.mine, "no key"):
        with pytest.raises(Refusal) as refusal:
            await ring.holder_of(text)
        assert (refusal.value.status, refusal.value.retry_after_s) == (503, 5.0), "nobody knows whether the key is good"
    await refused(ring, "")
    keys.path.write_bytes(whole)
    ring.refresh()
    assert (await ring.holder_of(keys.mine)).tenant == "me"
    ring.close()


async def test_a_key_that_is_revoked_while_the_file_cannot_be_opened_is_refused_later(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keys.ring.holder_of(keys.mine)
    keys.write([keys.your_record])

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as context:
        context.setattr(Path, "open", refuse)
        keys.ring.refresh()
    keys.ring.refresh()
    assert keys.ring.known(keys.mine) is None
    await refused(keys.ring, keys.mine)


async def test_checks_have_a_bound(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ring, "_MOST_CHECKS", 1)
    results = await asyncio.gather(*map(keys.ring.holder_of, (keys.mine, keys.yours)), return_exceptions=True)
    refusals = [one for one in results if isinstance(one, Refusal)]
    assert [(one.code, one.retry_after_s) for one in refusals] == [("overloaded", 1.0)]


async def test_all_calls_with_a_new_key_wait_for_one_check_of_it(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = list[str]()

    def check(record: KeyRecord, text: str) -> bool:
        checked.append(text)
        return is_key_of(record, text)

    monkeypatch.setattr(key_ring, "is_key_of", check)
    calls = [asyncio.ensure_future(keys.ring.holder_of(keys.mine)) for _ in range(300)]
    await asyncio.sleep(0)
    calls.pop(0).cancel()  # its client has left
    assert {holder.tenant for holder in await asyncio.gather(*calls)} == {"me"}
    assert checked == [keys.mine]


async def test_wrong_keys_with_the_id_of_one_hold_up_no_other_key(keys: Keys) -> None:
    wrong = [keys.mine[:-4] + f"{number:04}" for number in range(300)]
    calls = [asyncio.ensure_future(keys.ring.holder_of(text)) for text in wrong]
    await asyncio.sleep(0)
    assert (await keys.ring.holder_of(keys.yours)).tenant == "you"
    refusals = await asyncio.gather(*calls, return_exceptions=True)
    codes = [one.code for one in refusals if isinstance(one, Refusal)]
    assert (codes.count("invalid"), codes.count("overloaded")) == (4, 296)


def test_a_tenant_whose_first_key_another_gateway_has_seen_is_known(keys: Keys) -> None:
    _, record = new_key("fresh", Role.USER, 1.0)
    keys.write([keys.my_record, record])
    assert keys.ring.tenant_of(caller_of_tenant("fresh")) == "fresh"
