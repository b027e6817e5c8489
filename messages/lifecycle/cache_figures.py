"""The caches of a whole server in figures, summed up from what each actor says of itself in its heartbeats. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from messages.ids import role_of


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


class HostFigures(msgspec.Struct, frozen=True):
    """The host tiers of all schedulers, in pages; the counts are since an incarnation of each."""

    places: int
    pages: int  # that lie there, as far as the schedulers know
    stored: int
    loaded: int
    failed: int  # were missing or damaged
    load_s: float  # that loads have taken


class DiskFigures(msgspec.Struct, frozen=True):
    """The disk tiers of all schedulers, in pages; the counts are since an incarnation of each."""

    places: int
    pages: int  # that lie there, as far as the schedulers know
    written: int
    read: int
    failed: int  # did not come
    read_s: float  # that reads have taken


class ExchangeFigures(msgspec.Struct, frozen=True):
    """The moves of pages between replicas, in pages; the counts are since an incarnation of each scheduler."""

    places: int
    lent: int  # that others were offered
    moved: int
    failed: int  # did not come, or damaged
    move_s: float  # from questions until the pages could be used


class AnswerFigures(msgspec.Struct, frozen=True):
    """Kept answers at all gateways; since an incarnation of each."""

    answers: int
    bytes: int
    hits: int
    misses: int
    tokens: int  # that came from there


class SimilarFigures(msgspec.Struct, frozen=True):
    """Answers for similar questions at the cache directory; since an incarnation of it."""

    answers: int
    bytes: int
    hits: int
    misses: int
    evicted: int


class DirectoryFigures(msgspec.Struct, frozen=True):
    """Which scheduler has which page, at the cache directory."""

    pages: int
    queries: int


class CacheFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Each cache that the server has; None for one that is off or has not reported yet."""

    prefix: PrefixFigures | None = None
    host: HostFigures | None = None
    disk: DiskFigures | None = None
    exchange: ExchangeFigures | None = None
    answers: AnswerFigures | None = None
    similar: SimilarFigures | None = None
    directory: DirectoryFigures | None = None


def cache_figures(actors: Iterable[tuple[str, Mapping[str, float]]]) -> CacheFigures:
    """The figures of all caches of a server. actors: the name and the statistics of each actor; those of one role are added
    up."""
    sums: dict[str, dict[str, float]] = {}
    for name, statistics in actors:
        total = sums.setdefault(role_of(name), {})
        for key, number in statistics.items():
            total[key] = total.get(key, 0.0) + number
    schedulers, gateways = sums.get("scheduler", {}), sums.get("gateway", {})
    directory = sums.get("cache_directory", {})
    return CacheFigures(
        prefix=_prefix_cache(schedulers) if "pages" in schedulers else None,
        host=_host_tier(schedulers) if "host_places" in schedulers else None,
        disk=_disk_tier(schedulers) if "disk_places" in schedulers else None,
        exchange=_exchange(schedulers) if "exchange_places" in schedulers else None,
        answers=_answer_cache(gateways) if "answers_kept" in gateways else None,
        similar=_similar_answers(directory) if "similar_answers" in directory else None,
        directory=DirectoryFigures(int(directory["hashes"]), int(directory["queries"])) if "hashes" in directory else None,
    )


def _prefix_cache(sums: Mapping[str, float]) -> PrefixFigures:
    def count(key: str) -> int:
        return int(sums.get(key, 0))

    return PrefixFigures(
        pages=count("pages"),
        held=count("pages_held"),
        cached=count("pages_cached"),
        reused=count("pages_reused"),
        evicted=count("pages_evicted"),
        prompt_tokens=count("prompt_tokens"),
        cached_tokens=count("cached_tokens"),
        prefill_saved_s=round(sums.get("prefill_saved_s", 0.0), 3),
    )


def _host_tier(sums: Mapping[str, float]) -> HostFigures:
    def count(key: str) -> int:
        return int(sums.get(key, 0))

    return HostFigures(
        places=count("host_places"),
        pages=count("host_pages"),
        stored=count("host_stored"),
        loaded=count("host_loaded"),
        failed=count("host_failed"),
        load_s=round(sums.get("host_load_s", 0.0), 3),
    )


def _disk_tier(sums: Mapping[str, float]) -> DiskFigures:
    def count(key: str) -> int:
        return int(sums.get(key, 0))

    return DiskFigures(
        places=count("disk_places"),
        pages=count("disk_pages"),
        written=count("disk_written"),
        read=count("disk_read"),
        failed=count("disk_failed"),
        read_s=round(sums.get("disk_read_s", 0.0), 3),
    )


def _exchange(sums: Mapping[str, float]) -> ExchangeFigures:
    def count(key: str) -> int:
        return int(sums.get(key, 0))

    return ExchangeFigures(
        places=count("exchange_places"),
        lent=count("exchange_lent"),
        moved=count("exchange_moved"),
        failed=count("exchange_failed"),
        move_s=round(sums.get("exchange_move_s", 0.0), 3),
    )


def _answer_cache(sums: Mapping[str, float]) -> AnswerFigures:
    def count(key: str) -> int:
        return int(sums.get(key, 0))

    return AnswerFigures(
        answers=count("answers_kept"),
        bytes=count("answer_bytes"),
        hits=count("answer_hits"),
        misses=count("answer_misses"),
        tokens=count("answer_tokens"),
    )


def _similar_answers(sums: Mapping[str, float]) -> SimilarFigures:
    def count(key: str) -> int:
        return int(sums.get(key, 0))

    return SimilarFigures(
        answers=count("similar_answers"),
        bytes=count("similar_bytes"),
        hits=count("similar_hits"),
        misses=count("similar_misses"),
        evicted=count("similar_evicted"),
    )
