"""The caches of a whole server in figures, summed up from what each actor says of itself in its heartbeats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from messages.ids import role_of

_F = TypeVar("_F", bound=msgspec.Struct)
# Statistics whose names do not follow from those of the fields
_OF_PREFIXES = {name: name for name in ("pages", "prompt_tokens", "cached_tokens", "prefill_saved_s")}
_OF_ANSWERS = {"answers": "answers_kept"}
_OF_FOLLOWERS = {"requests": "coalesced"}
_OF_DIRECTORY = {"pages": "hashes", "hits": "prefix_hits", "misses": "prefix_misses", "bytes": "index_bytes"}
_OF_POLICY = "_shadow_hits"  # how the name of one statistic of each policy ends
_OLDEST = "_oldest_s"  # of several actors the oldest counts


class EvictionFigures(msgspec.Struct, frozen=True):
    """What one eviction policy has done at all schedulers, in pages."""

    hits: int  # reused while it chose
    evictions: int  # that it chose
    ghost_hits: int  # computed again soon after it had evicted them
    shadow_hits: int  # that it alone would have reused, as `adaptive` estimates


class PrefixFigures(msgspec.Struct, frozen=True):
    """Pages of keys and values at all schedulers. The counts of pages begin anew with a page ledger, the others with an
    incarnation of a scheduler."""

    pages: int
    held: int  # by running sequences
    cached: int  # without a holder, reusable by content
    reused: int  # pages that entered a slot without being computed
    evicted: int
    prompt_tokens: int
    cached_tokens: int  # of them were not computed
    prefill_saved_s: float  # that computing them would have taken, by measured steps
    bytes: int  # of held and cached pages, at all ranks
    oldest_s: float  # age of the oldest content
    by_policy: dict[str, EvictionFigures] = {}  # since a page ledger is new
    saved_bytes: int = 0  # keys and values of the cached tokens, at all ranks, which were not computed


class HostFigures(msgspec.Struct, frozen=True):
    """The host tiers of all schedulers, in pages; the counts are since an incarnation of each."""

    places: int
    pages: int  # that lie there, as far as the schedulers know
    stored: int
    loaded: int
    failed: int  # were missing or damaged
    load_s: float  # that loads have taken
    bytes: int  # of these pages, at all ranks
    evicted: int  # overwritten by others
    oldest_s: float  # for so long the page that is overwritten next was not used
    saved_s: float = 0.0  # of prefill, as estimated, less the time until the pages were there
    saved_bytes: int = 0  # keys and values of the pages that came back, at all ranks
    share_evicted: int = 0  # of the evicted ones, because their caller had more than its part
    in_use: int = 0  # places whose memory is not with the system; 0: a scheduler of the last release, which does not say so


class DiskFigures(msgspec.Struct, frozen=True):
    """The disk tiers of all schedulers, in pages; the counts are since an incarnation of each."""

    places: int
    pages: int  # that lie there, as far as the schedulers know
    written: int
    read: int
    failed: int  # did not come
    read_s: float  # that reads have taken
    bytes: int  # of these pages, at all ranks
    evicted: int  # overwritten by others
    oldest_s: float  # for so long the page that is overwritten next was not used
    saved_s: float = 0.0  # of prefill, as estimated, less the time until the pages were there
    saved_bytes: int = 0  # keys and values of the pages that came back, at all ranks
    share_evicted: int = 0  # of the evicted ones, because their caller had more than its part


class ExchangeFigures(msgspec.Struct, frozen=True):
    """The moves of pages between replicas, in pages; the counts are since an incarnation of each scheduler."""

    places: int
    lent: int  # that others were offered
    moved: int
    failed: int  # did not come, or damaged
    move_s: float  # from questions until the pages could be used
    pages: int = 0  # that lie at places
    bytes: int = 0  # of these pages, at all ranks
    evicted: int = 0  # overwritten by others
    oldest_s: float = 0.0  # for so long the page that is overwritten next was not used
    saved_s: float = 0.0  # of prefill, as estimated, less the time of the moves
    saved_bytes: int = 0  # keys and values of the pages that moved, at all ranks


class AnswerFigures(msgspec.Struct, frozen=True):
    """Kept answers at all gateways; since an incarnation of each."""

    answers: int
    bytes: int
    hits: int
    misses: int
    tokens: int  # that came from there
    evicted: int  # for want of room
    oldest_s: float  # age of the oldest one
    prompt_tokens: int = 0  # of the requests that found one
    saved_s: float = 0.0  # of their prefill, by measured steps and as if no prefix were cached
    saved_bytes: int = 0  # keys and values of these prompts, at all ranks of a replica
    share_evicted: int = 0  # of the evicted ones, because their caller had more than its part


class SharedFigures(msgspec.Struct, frozen=True):
    """Kept answers that gateways share, at the cache directory; the count is since an incarnation of it."""

    answers: int
    bytes: int
    evicted: int
    oldest_s: float  # age of the oldest one
    hits: int = 0  # gateways have found answers that are here; of one answer, a message of a gateway counts once
    prompt_tokens: int = 0  # the part of `AnswerFigures` that gateways have found which had not computed the answers
    saved_s: float = 0.0
    saved_bytes: int = 0
    share_evicted: int = 0  # of the evicted ones, because their caller had more than its part


class SimilarFigures(msgspec.Struct, frozen=True):
    """Answers for similar questions at the cache directory; since an incarnation of it."""

    answers: int
    bytes: int
    hits: int
    misses: int
    evicted: int
    oldest_s: float  # age of the oldest one
    prompt_tokens: int = 0  # as in `AnswerFigures`
    saved_s: float = 0.0
    saved_bytes: int = 0
    share_evicted: int = 0  # of the evicted ones, because their caller had more than its part


class CoalescedFigures(msgspec.Struct, frozen=True):
    """Equal requests that run at the same time and are computed once, at all gateways; since an incarnation of each. Nothing is
    kept, so there are no evictions and no ages."""

    running: int  # requests that others may follow, and those that follow
    requests: int  # that have followed
    tokens: int  # of answers, that they got so
    prompt_tokens: int  # of those that had everything from the one that was computed
    saved_s: float  # of their prefill, by measured steps and as if no prefix were cached
    saved_bytes: int  # keys and values of these prompts, at all ranks of a replica


class DirectoryFigures(msgspec.Struct, frozen=True):
    """Which scheduler has which page, at the cache directory."""

    pages: int  # each as often as schedulers have it
    queries: int
    hits: int = 0  # questions for a prefix that some scheduler had
    misses: int = 0
    bytes: int = 0  # memory of the index, estimated; pages leave it with those of their schedulers, so it has no age


class CacheFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Each cache that the server has; None for one that is off or has not reported yet."""

    prefix: PrefixFigures | None = None
    host: HostFigures | None = None
    disk: DiskFigures | None = None
    exchange: ExchangeFigures | None = None
    answers: AnswerFigures | None = None
    shared: SharedFigures | None = None
    similar: SimilarFigures | None = None
    coalesced: CoalescedFigures | None = None
    directory: DirectoryFigures | None = None


def cache_figures(actors: Iterable[tuple[str, Mapping[str, float]]]) -> CacheFigures:
    """The figures of all caches of a server. actors: the name and the statistics of each actor; those of one role are added
    up, but of ages the greatest is taken."""
    sums: dict[str, dict[str, float]] = {}
    for name, statistics in actors:
        total = sums.setdefault(role_of(name), {})
        for key, number in statistics.items():
            before = total.get(key, 0.0)
            total[key] = max(before, number) if key.endswith(_OLDEST) else before + number
    schedulers, gateways = sums.get("scheduler", {}), sums.get("gateway", {})
    directory = sums.get("cache_directory", {})
    both = {**gateways, **directory}  # what gateways have saved by the answers that the directory keeps
    return CacheFigures(
        prefix=_prefix_figures(schedulers) if "pages" in schedulers else None,
        host=_figures(HostFigures, schedulers, "host_") if "host_places" in schedulers else None,
        disk=_figures(DiskFigures, schedulers, "disk_") if "disk_places" in schedulers else None,
        exchange=_figures(ExchangeFigures, schedulers, "exchange_") if "exchange_places" in schedulers else None,
        answers=_figures(AnswerFigures, gateways, "answer_", _OF_ANSWERS) if "answers_kept" in gateways else None,
        shared=_figures(SharedFigures, both, "shared_") if "shared_answers" in directory else None,
        similar=_figures(SimilarFigures, both, "similar_") if "similar_answers" in directory else None,
        coalesced=_figures(CoalescedFigures, gateways, "coalesced_", _OF_FOLLOWERS) if "coalesced" in gateways else None,
        directory=_figures(DirectoryFigures, directory, "", _OF_DIRECTORY) if "hashes" in directory else None,
    )


def _prefix_figures(schedulers: Mapping[str, float]) -> PrefixFigures:
    names = sorted(key.removesuffix(_OF_POLICY) for key in schedulers if key.endswith(_OF_POLICY))
    by_policy = {name: _figures(EvictionFigures, schedulers, f"{name}_") for name in names}
    return msgspec.structs.replace(_figures(PrefixFigures, schedulers, "pages_", _OF_PREFIXES), by_policy=by_policy)


def _figures(kind: type[_F], sums: Mapping[str, float], prefix: str, others: Mapping[str, str] = {}) -> _F:
    """One cache. Each field has the statistic of its name behind `prefix`, or the one that `others` names."""
    names = {field: others.get(field, prefix + field) for field in kind.__struct_fields__ if field != "by_policy"}
    return msgspec.convert({field: round(sums.get(name, 0.0), 3) for field, name in names.items()}, kind, strict=False)
