"""Finished requests that clients can still ask for. They stay encoded, as the journal has them, until they are asked for.

They are kept, with prompts and tokens, in the journal and in memory: for a bounded time, up to a bounded number and size. Those
that clients have named with a key are kept apart from the others. A stream without a key is kept so that its connection can go
on after a death and its client can come back: for 20 s once the client has all of it. Clients come back within seconds, and the
next incarnation reads all that is kept while streams wait for it.

What has ended of a batch is kept until its answer, which is sent when the last of its requests has ended, is not under way any
more: the next incarnation needs all of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import msgspec

from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import (
    FinishRecord,
    RequestRecord,
    encode_record,
    encode_spec,
    finish_record,
    request_record,
)
from actors.gateway.journal.restore import restore_finished
from actors.gateway.models.model_identity import ModelIdentity
from actors.gateway.models.served_models import ServedModels
from actors.gateway.requests.request import Request

_MAX_KEYED, MOST_KEYED_BYTES = 8192, 256 << 20
MOST_KEYLESS, MOST_KEYLESS_BYTES = 4096, 64 << 20
_READ_S = 20.0  # how long an answer without a key is kept once its client has read it
_MAX_FORGOTTEN = 65_536


@dataclass(frozen=True, slots=True)
class Retained:
    """One finished request. `ended_s`: the monotonic clock; negative if it ended before the machine's boot. `caller`: who has
    asked; b"": callers are not told apart, or an earlier process has kept it."""

    number: int
    record: RequestRecord
    finish: FinishRecord
    ended_s: float
    caller: bytes = b""

    @property
    def n_bytes(self) -> int:
        """Memory of the tokens and the prompts."""
        return len(self.finish.states) + len(self.record.spec)


class ForgottenIds:
    """The ids of the last 65,536 requests that were retained and are not any more, as hashes of 8 bytes."""

    def __init__(self) -> None:
        self._hashes: dict[int, None] = {}  # in the order of their addition

    def add(self, request_id: str) -> None:
        """Remember an id."""
        self._hashes[hash(request_id)] = None
        if len(self._hashes) > _MAX_FORGOTTEN:
            del self._hashes[next(iter(self._hashes))]

    def __contains__(self, request_id: str) -> bool:
        return hash(request_id) in self._hashes


class RetainedSet:
    """Finished requests in the order of their ends. The newest is always kept, however large. When there are too many, those of
    the caller that has most are removed, so that nobody's flood removes what others have not read yet."""

    def __init__(self, most: float, most_bytes: float) -> None:
        """`most`: requests; `most_bytes`: of all requests together."""
        self.by_id: dict[str, Retained] = {}
        self._most, self._most_bytes, self._n_bytes = most, most_bytes, 0
        self._ids_of: dict[bytes, dict[str, None]] = {}  # by caller, in the same order
        self._bytes_of: Counter[bytes] = Counter()

    @property
    def is_too_full(self) -> bool:
        """True if a request must be removed."""
        return len(self.by_id) > 1 and (len(self.by_id) > self._most or self._n_bytes > self._most_bytes)

    @property
    def oldest(self) -> Retained | None:
        """The one that ended first, or None."""
        return next(iter(self.by_id.values()), None)

    @property
    def surplus(self) -> Retained:
        """The one that is removed first when there are too many, of two at least."""
        ids_of, newest = self._ids_of, next(reversed(self.by_id.values()))
        callers = [caller for caller, ids in ids_of.items() if caller != newest.caller or len(ids) > 1]
        is_large = self._n_bytes > self._most_bytes
        most = max(callers, key=self._bytes_of.__getitem__ if is_large else lambda caller: len(ids_of[caller]))
        return self.by_id[next(iter(ids_of[most]))]

    def add(self, kept: Retained) -> None:
        """Add one whose id is not here."""
        self.by_id[kept.record.request] = kept
        self._n_bytes += kept.n_bytes
        self._ids_of.setdefault(kept.caller, {})[kept.record.request] = None
        self._bytes_of[kept.caller] += kept.n_bytes

    def pop(self, request_id: str) -> Retained | None:
        """Remove one and return it; None if it is not here."""
        kept = self.by_id.pop(request_id, None)
        if kept is not None:
            self._n_bytes -= kept.n_bytes
            self._bytes_of[kept.caller] -= kept.n_bytes
            del self._ids_of[kept.caller][request_id]
            if not self._ids_of[kept.caller]:
                del self._ids_of[kept.caller], self._bytes_of[kept.caller]
        return kept


class RetainedRequests:
    """Finished requests by id: at most 8192 with a key, 4096 without. The oldest of a kind are dropped first, where callers are
    told apart those of the caller that has most.

    All times are the monotonic clock.
    """

    def __init__(
        self,
        journal: Journal,
        models: ServedModels,
        retention_s: float,
        most_bytes: int = MOST_KEYED_BYTES,
        *,
        are_told_apart: bool = False,
    ) -> None:
        """`most_bytes` bounds those with a key all together. `are_told_apart`: callers are."""
        self._are_told_apart = are_told_apart
        self._journal, self._models, self._retention_s = journal, models, retention_s
        self._keyed = RetainedSet(_MAX_KEYED, most_bytes)
        self._keyless = RetainedSet(MOST_KEYLESS, min(most_bytes, MOST_KEYLESS_BYTES))
        self._joint = RetainedSet(math.inf, math.inf)  # of batches under way; their own number is bounded
        self._sets = (self._keyed, self._keyless)
        self._n_holders = Counter[str]()  # by the id of such a batch
        self._id_by_number: dict[int, str] = {}
        self._read_s: dict[str, float] = {}  # when clients had read answers without a key, nearly in this order
        self.forgotten = ForgottenIds()

    def keep(self, request: Request, ended_s: float) -> None:
        """Record the end of a request and keep it if it is resumable, else delete it once it is `answered`."""
        if not request.spec.is_resumable:
            self.answered(request)
            return
        finish = finish_record(request)
        self._journal.finish(request.number, encode_record(finish))
        age_s = max(ended_s - request.began_s, 0.0)
        record = RequestRecord(request.spec.request, self._identity_of(request), encode_spec(request.spec), age_s, b"", finish)
        self.add(request.number, record, ended_s, caller=request.spec.terms.caller if self._are_told_apart else b"")

    def add(self, number: int, record: RequestRecord, ended_s: float, read_s: float | None = None, caller: bytes = b"") -> None:
        """Keep a request whose end the journal has. `read_s`: when its client had the whole answer, if it has."""
        assert record.finish is not None, "it is finished"
        before = self._remove(record.request)
        if before and before != number:
            self._journal.delete(before)
        self._id_by_number[number] = record.request
        if read_s is not None and record.finish.is_keyless:
            self._read_s[record.request] = read_s
        self._place(Retained(number, record, record.finish, ended_s, caller))

    def _place(self, kept: Retained) -> None:
        if self._is_held(kept.record.request):
            self._joint.add(kept)
            return
        retained_set = self._keyless if kept.finish.is_keyless else self._keyed
        retained_set.add(kept)
        while retained_set.is_too_full:
            self._drop(retained_set.surplus)

    def hold(self, batch: str, members: Iterable[str] = ()) -> None:
        """An answer to this batch is under way. `members`: the ids of its requests, of which some may be kept already. Others
        are known by their ids: that of the batch, a dot and a number."""
        self._n_holders[batch] += 1
        for request_id in members:
            if (kept := self._keyed.pop(request_id) or self._keyless.pop(request_id)) is not None:
                self._joint.add(kept)

    def release(self, batch: str, now_s: float) -> None:
        """An answer to this batch is not under way any more. What is kept of it counts as ended now."""
        self._n_holders[batch] -= 1
        self._n_holders += Counter()  # without those that are 0
        for request_id in [one for one in self._joint.by_id if not self._is_held(one)]:
            if (kept := self._joint.pop(request_id)) is not None:
                self._place(replace(kept, ended_s=now_s))

    def _is_held(self, request_id: str) -> bool:
        held = self._n_holders
        return bool(held) and (request_id in held or request_id.rpartition(".")[0] in held)

    def read(self, request_id: str, now_s: float) -> None:
        """A client has read the whole answer to a request."""
        kept = self.find(request_id)
        if kept is not None and kept.finish.is_keyless and request_id not in self._read_s:
            self._read_s[request_id] = now_s
            self._journal.read(kept.number)  # the next incarnation keeps it no longer than this one

    def answered(self, request: Request) -> None:
        """The readers of a request that is over have left. If nobody can ask for it again, it is deleted from the journal; not
        before its answer has been sent, because the next incarnation must send it if this one dies.
        """
        if request.is_recorded and not (request.is_at_once or request.spec.is_resumable or request.watchers):
            self._journal.delete(request.number)

    def ended_since(self, since_s: float) -> list[Retained]:
        """Those that have ended since this time."""
        kept = (*self._keyed.by_id.values(), *self._keyless.by_id.values(), *self._joint.by_id.values())
        return [one for one in kept if one.ended_s >= since_s]

    def find(self, request_id: str) -> Retained | None:
        """The finished request with this id, or None."""
        return self._keyed.by_id.get(request_id) or self._keyless.by_id.get(request_id) or self._joint.by_id.get(request_id)

    def restore(self, request_id: str, now_s: float) -> Request | None:
        """The finished request with this id, decoded; None if it is not kept."""
        kept = self.find(request_id)
        return None if kept is None else restore_finished(kept.number, kept.record, self._models, now_s)

    def record_again(
        self, numbers: list[int], unfinished: list[Request], coming: Callable[[Request], list[int]], now_s: float
    ) -> None:
        """Write these requests to the journal's newest file, so that older files can be deleted.

        `coming`: the items of a request that are not visible yet, in order.
        """
        running = {request.number: request for request in unfinished}
        for number in numbers:
            request, kept = running.get(number), self.find(self._id_by_number.get(number, ""))
            if request is not None:
                record = request_record(request, self._identity_of(request), now_s, coming(request))
                self._journal.request(number, encode_record(record))
            elif kept is not None:
                read_s = self._read_s.get(kept.record.request)
                read_age_s = None if read_s is None else max(now_s - read_s, 0.0)
                finish = msgspec.structs.replace(kept.finish, age_s=max(now_s - kept.ended_s, 0.0), read_age_s=read_age_s)
                self._journal.answer(number, encode_record(msgspec.structs.replace(kept.record, finish=finish)))
            else:
                self._journal.delete(number)

    def delete(self, request_id: str) -> None:
        """Delete the finished request with this id, if there is one, because another one gets the id."""
        if number := self._remove(request_id):
            self._journal.delete(number)

    def expire(self, now_s: float) -> None:
        """Delete requests past their retention, and those without a key some time after their clients have read them."""
        for retained_set in self._sets:
            while (oldest := retained_set.oldest) is not None and now_s - oldest.ended_s > self._retention_s:
                self._drop(oldest)
        while self._read_s and now_s - next(iter(self._read_s.values())) > _READ_S:
            request_id = next(iter(self._read_s))
            del self._read_s[request_id]
            if (kept := self._keyless.by_id.get(request_id)) is not None:  # a batch that is under way goes on
                self._drop(kept)

    def _identity_of(self, request: Request) -> ModelIdentity:
        """The model for which it was accepted, perhaps by an earlier process with another one."""
        return request.identity or self._models.at(request.spec.model).identity

    def _drop(self, kept: Retained) -> None:
        self.forgotten.add(kept.record.request)
        self._journal.delete(self._remove(kept.record.request))

    def _remove(self, request_id: str) -> int:
        """Remove a request from memory; returns its number, 0 if it is not kept."""
        kept = self._keyed.pop(request_id) or self._keyless.pop(request_id) or self._joint.pop(request_id)
        if kept is None:
            return 0
        self._read_s.pop(request_id, None)
        del self._id_by_number[kept.number]
        return kept.number

    def __len__(self) -> int:
        return sum(len(retained_set.by_id) for retained_set in (*self._sets, self._joint))
