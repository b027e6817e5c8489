"""Refuses prompts that have killed workers again and again. Pure: the caller passes the time.

Clients repeat a request that failed, with the same id or another one, and each repetition would kill its gang four times more.
A prompt is remembered with its sampling and its caller, for as long as finished requests are retained: the same prompt of
another caller is computed, because it has harmed nobody yet. If workers died after sampled tokens, it is remembered with the
seed too: other seeds give other tokens. A request is not refused if it asks for no more tokens than were generated before the
workers died.

Each entry keeps the replicas at which workers died. If one of them turns out to be sick, the entry is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from actors.gateway.poison.remembered import RememberedPrompt
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import GrowingSequence
from actors.gateway.requests.request_spec import TERMS_WITHOUT_EFFECT, RequestSpec
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms

_MAX_ENTRIES = 1024
# admission has applied them to the tokens, or they change the text alone
_TEXT_TERMS = ("include_stop_str_in_output", "skip_special_tokens", "bad_words", "truncate_prompt_tokens")
# without effect on the generated tokens: a limit only ends them
_OTHER_TERMS = (*TERMS_WITHOUT_EFFECT, *_TEXT_TERMS, "max_tokens")
_TERMS_OF_THE_ANSWER = tuple(name for name in Terms.__struct_fields__ if name not in _OTHER_TERMS)


class _Entry(NamedTuple):
    until_s: float
    n_given: int  # the fewest tokens that were generated before workers died
    replicas: frozenset[str]  # at which they died


class Quarantine:
    """At most 1024 prompts; the oldest is dropped first. All times are the monotonic clock."""

    def __init__(self, retention_s: float) -> None:
        self._retention_s = retention_s
        self._entries: dict[bytes, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, spec: RequestSpec, index: int, n_given: int, now_s: float, replicas: frozenset[str] = frozenset()) -> None:
        """Remember the prompt of sequence `index`: workers of these replicas died after `n_given` tokens of its answer."""
        depends_on_seed = n_given > 0 and spec.sampling.temperature > 0
        key = _key(spec, index // spec.n) + (_seed_bytes(spec, index) if depends_on_seed else b"")
        before = self._entries.pop(key, None)
        self._entries[key] = _Entry(now_s + self._retention_s, min(n_given, before.n_given) if before else n_given, replicas)
        self._drop_oldest()

    def check(self, spec: RequestSpec, now_s: float) -> None:
        """Return if no prompt of this request is quarantined. Raises: Refusal."""
        while self._entries and next(iter(self._entries.values())).until_s <= now_s:
            del self._entries[next(iter(self._entries))]
        if not self._entries:
            return
        for entry in self._entries_of(spec):
            if entry.until_s > now_s and spec.terms.max_tokens > entry.n_given:
                where = f"after {entry.n_given} tokens of this prompt's answer" if entry.n_given else "of this prompt"
                detail = f"quarantined: workers died {where}; it is refused for another {entry.until_s - now_s:.0f} s"
                raise Refusal("quarantined", detail)

    def clear_replica(self, replica: str) -> bool:
        """Forget every prompt that deaths at a sick replica have put under quarantine. Returns True if there was one."""
        n_before = len(self._entries)
        self._entries = {key: entry for key, entry in self._entries.items() if replica not in entry.replicas}
        return len(self._entries) < n_before

    def remembered(self, now_s: float) -> list[RememberedPrompt]:
        """What counts now, the oldest first."""
        return [
            RememberedPrompt(key, entry.until_s - now_s, entry.n_given, tuple(sorted(entry.replicas)))
            for key, entry in self._entries.items()
            if entry.until_s > now_s
        ]

    def restore(self, prompts: Iterable[RememberedPrompt], now_s: float) -> None:
        """Add what an earlier process remembers. Prompts that are known already stay as they are."""
        for one in prompts:
            until_s = now_s + min(one.left_s, self._retention_s)
            if until_s > now_s:
                self._entries.setdefault(one.key, _Entry(until_s, one.n_given, frozenset(one.replicas)))
        self._entries = dict(sorted(self._entries.items(), key=lambda item: item[1].until_s))
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._entries) > _MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]

    def _entries_of(self, spec: RequestSpec) -> Iterator[_Entry]:
        """What is remembered of the sequences of this request."""
        for nth in range(len(spec.prompts)):
            key = _key(spec, nth)
            seeds = [_seed_bytes(spec, index) for index in range(nth * spec.n, (nth + 1) * spec.n)]
            for end in (b"", *seeds):
                if (entry := self._entries.get(key + end)) is not None:
                    yield entry


def is_same_computation(one: GrowingSequence, other: GrowingSequence) -> bool:
    """True if `other` is of the same caller and will compute the same tokens as `one` has, at least up to the length of `one`.

    Everything that the tokens of a sequence depend on is compared here.
    """
    a, b = one.spec, other.spec
    depends_on_seed = bool(one.ids)  # workers died after tokens that were sampled
    return (
        other is not one
        and len(other.ids) <= len(one.ids) < b.terms.max_tokens
        and a.prompts[one.index // a.n] == b.prompts[other.index // b.n]
        and _noise(one, depends_on_seed) == _noise(other, depends_on_seed)
        and all(getattr(a.terms, name) == getattr(b.terms, name) for name in _TERMS_OF_THE_ANSWER)
    )


def _noise(sequence: GrowingSequence, depends_on_seed: bool) -> Sampling:
    """The sampling of a sequence, without the seed if that has no influence: the choice is greedy, or none has been made."""
    sampling = sequence.spec.sampling_of(sequence.index)
    return sampling if sampling.temperature and depends_on_seed else msgspec.structs.replace(sampling, seed=0)


def _seed_bytes(spec: RequestSpec, index: int) -> bytes:
    return spec.sampling_of(index).seed.to_bytes(8, "little")


def _key(spec: RequestSpec, nth: int) -> bytes:
    """Digest of prompt number `nth`, of its caller, and of the sampling without its seed."""
    sampling = msgspec.msgpack.encode(msgspec.structs.replace(spec.sampling, seed=0))
    key = blake2b(sampling + spec.terms.caller, digest_size=32).digest()
    return blake2b(spec.prompts[nth], digest_size=16, key=key).digest()
