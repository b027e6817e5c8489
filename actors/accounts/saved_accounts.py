"""The file of the accounts, from which the next incarnation goes on. A damaged file counts as none.

It is replaced as a whole, at most once a second; what has come since then is in a log. What gateways have told is confirmed to
them when it is in the file, and they tell it again until then. So the death of this process loses nothing.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

import msgspec

from actors.accounts.account import Denied, TenantAccount
from actors.accounts.command_log import CommandLog, Handled
from actors.accounts.ledger import Ledger, OpenRequest
from messages.access.allowances import AllowanceState, TakeAllowance, UsageTold
from messages.access.bucket import Bucket

_MAGIC = b"tardigrade accounts 1\n"  # of this format; another one is not read
_DIGEST_BYTES = 16
_MOST_AWAY_S = 60.0  # the time since a file was written counts up to this, because the wall clock may jump


class SavedAccount(msgspec.Struct, frozen=True, array_like=True):
    """One account. Its policy is not in it: that is in the configuration and the file of tenants. `requests_per_min` and
    `tokens_per_min`: the limits that the buckets had, as the policy may be another one now; below 0: not known."""

    requests_left: float
    requests_owed: float
    tokens_left: float
    tokens_owed: float
    day: int
    used_today: int
    requests_per_min: float = -1.0
    tokens_per_min: float = -1.0


class _SavedLedger(msgspec.Struct, frozen=True):
    log: int  # the first log with what is not in this file
    wall_s: float  # Unix time at which it was so
    accounts: dict[str, SavedAccount]
    requests: dict[str, OpenRequest]


_decoder = msgspec.msgpack.Decoder(_SavedLedger)


def encoded(ledger: Ledger, wall_s: float, log: int = 0) -> bytes:
    """The bytes of a file with all accounts as they are. `log`: the number of the log that begins now."""
    accounts = {name: _saved(account) for name, account in ledger.accounts.items()}
    body = msgspec.msgpack.encode(_SavedLedger(log, wall_s, accounts, ledger.requests))
    return _MAGIC + blake2b(body, digest_size=_DIGEST_BYTES).digest() + body


def write_accounts(path: Path, content: bytes) -> None:
    """Replace the file, which only this user can read, so that it survives a power loss. Raises: OSError."""
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def restore(ledger: Ledger, path: Path, now_s: float, wall_s: float) -> bool:
    """Go on with the accounts of a file and its logs; returns whether the file can be read, or there is none. The time since it
    was written refills the buckets, by the wall clock, by one minute's refill at most."""
    try:
        saved = _decoded(path.read_bytes())
    except FileNotFoundError:
        saved = _SavedLedger(0, wall_s, {}, {})
    except OSError:
        return False
    if saved is None:
        return False
    away_s = min(max(wall_s - saved.wall_s, 0.0), _MOST_AWAY_S)
    for name, one in saved.accounts.items():
        policy = ledger.book.policy_of(name)
        account = TenantAccount(policy, now_s - away_s, wall_s)
        account.day, account.used_today = one.day, one.used_today
        requests_per_min = one.requests_per_min if one.requests_per_min >= 0.0 else policy.requests_per_min
        tokens_per_min = one.tokens_per_min if one.tokens_per_min >= 0.0 else policy.tokens_per_min
        account.requests = Bucket(requests_per_min, now_s - away_s, one.requests_left, one.requests_owed)
        account.tokens = Bucket(tokens_per_min, now_s - away_s, one.tokens_left, one.tokens_owed)
        ledger.accounts[name] = account
        account.refresh(account.policy, now_s, wall_s)
    for name, request in saved.requests.items():
        account = ledger.account(request.tenant, now_s, wall_s)
        account.held_tokens += request.held
        account.n_sequences += 0 if request.is_over else request.sequences
        ledger.requests[name] = request
    for record in CommandLog(path).records(saved.log):
        handle(ledger, record, now_s, max(record.wall_s, saved.wall_s))
    ledger.restored(now_s)
    return True


def handle(ledger: Ledger, record: Handled, now_s: float, wall_s: float) -> tuple[Denied | None, AllowanceState] | None:
    """Let the ledger handle what has come; returns the answer to a question."""
    match record.what:
        case TakeAllowance(tenant=tenant, wanted=wanted):
            return ledger.take(record.gateway, tenant, wanted, now_s, wall_s)
        case UsageTold() as message:
            ledger.tell(record.gateway, message, now_s, wall_s)
        case _:
            ledger.gateway_down(record.gateway, now_s)
    return None


def _decoded(data: bytes) -> _SavedLedger | None:
    start = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(data)[start:]
    if data[:start] != _MAGIC + blake2b(body, digest_size=_DIGEST_BYTES).digest():
        return None
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError:  # of another release
        return None


def _saved(account: TenantAccount) -> SavedAccount:
    requests, tokens = account.requests, account.tokens
    return SavedAccount(
        requests.left,
        requests.owed,
        tokens.left,
        tokens.owed,
        account.day,
        account.used_today,
        requests.per_min,
        tokens.per_min,
    )
