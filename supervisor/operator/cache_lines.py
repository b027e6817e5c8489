"""The caches of a server in lines for the status table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from messages.lifecycle.cache_figures import (
    AnswerFigures,
    CoalescedFigures,
    DirectoryFigures,
    DiskFigures,
    ExchangeFigures,
    HostFigures,
    PrefixFigures,
    SharedFigures,
    SimilarFigures,
    cache_figures,
)
from messages.lifecycle.tree import StatusReport

_F = TypeVar("_F")


def cache_lines(report: StatusReport) -> list[str]:
    """One line for each cache that the actors of this report have."""
    found = cache_figures((child.name, child.statistics) for child in report.children)
    lines = (
        _line(_prefix_text, found.prefix),
        _line(_policies_text, found.prefix),
        _line(_host_text, found.host),
        _line(_disk_text, found.disk),
        _line(_exchange_text, found.exchange),
        _line(_answers_text, found.answers),
        _line(_shared_text, found.shared),
        _line(_similar_text, found.similar),
        _line(_coalesced_text, found.coalesced),
        _line(_directory_text, found.directory),
    )
    return [line for line in lines if line]


def _line(text_of: Callable[[_F], str], figures: _F | None) -> str:
    return text_of(figures) if figures is not None else ""


def _prefix_text(cache: PrefixFigures) -> str:
    share = f"{cache.cached_tokens / cache.prompt_tokens:.0%}" if cache.prompt_tokens else "none"
    pages = f"{cache.held:,} of {cache.pages:,} pages held, {cache.cached:,} cached, {cache.evicted:,} evicted"
    size = f"{cache.bytes / 1e6:,.1f} MB, the oldest of {cache.oldest_s:,.0f} s"
    saved = _saved(cache.prefill_saved_s, cache.saved_bytes)
    return f"prefix cache: {pages}; {size}; {share} of prompt tokens reused, {saved} saved"


def _policies_text(cache: PrefixFigures) -> str:
    policies = [
        f"{name} {one.hits:,} pages reused, {one.evictions:,} evicted, {one.ghost_hits:,} computed again"
        for name, one in cache.by_policy.items()
    ]
    return f"eviction: {'; '.join(policies)}" if policies else ""


def _host_text(tier: HostFigures) -> str:
    size = f" ({tier.in_use:,} in use)" if 0 < tier.in_use < tier.places else ""
    moved = f"{tier.stored:,} stored, {tier.loaded:,} came back in {tier.load_s:,.1f} s"
    pages = f"{tier.pages:,} of {tier.places:,} pages{size}, {moved}"
    return f"host cache: {pages} and saved {_saved(tier.saved_s, tier.saved_bytes)}, {_overwritten(tier)}"


def _disk_text(tier: DiskFigures) -> str:
    pages = (
        f"{tier.pages:,} of {tier.places:,} pages, {tier.written:,} written, {tier.read:,} came back in {tier.read_s:,.1f} s"
    )
    return f"disk cache: {pages} and saved {_saved(tier.saved_s, tier.saved_bytes)}, {_overwritten(tier)}"


def _overwritten(tier: HostFigures | DiskFigures) -> str:
    return f"{tier.failed:,} missing or damaged, {_size(tier)}{_of_callers(tier)}"


def _size(tier: HostFigures | DiskFigures | ExchangeFigures) -> str:
    size = f"{tier.bytes / 1e6:,.1f} MB, the next to go was used {tier.oldest_s:,.0f} s ago"
    return f"{tier.evicted:,} evicted; {size}"


def _exchange_text(moves: ExchangeFigures) -> str:
    pages = f"{moves.moved:,} pages in {moves.move_s:,.1f} s, which saved {_saved(moves.saved_s, moves.saved_bytes)}"
    others = f"{moves.lent:,} offered, {moves.failed:,} missing or damaged"
    return f"moved between replicas: {pages}, {others}; {moves.pages:,} of {moves.places:,} places in use, {_size(moves)}"


def _answers_text(cache: AnswerFigures) -> str:
    found = f"{cache.hits:,} of {cache.hits + cache.misses:,} requests"
    return f"kept answers: {_answers(cache)}; found for {found}, {_saved(cache.saved_s, cache.saved_bytes)} saved"


def _shared_text(cache: SharedFigures) -> str:
    saved = f"{_saved(cache.saved_s, cache.saved_bytes)} saved where others had computed them"
    return f"shared answers: {_answers(cache)}; found {cache.hits:,} times, {saved}"


def _similar_text(cache: SimilarFigures) -> str:
    found = f"{cache.hits:,} of {cache.hits + cache.misses:,} questions"
    saved = _saved(cache.saved_s, cache.saved_bytes)
    return f"answers for similar questions: {_answers(cache)}; found for {found}, {saved} saved"


def _coalesced_text(equal: CoalescedFigures) -> str:
    saved = f"{equal.tokens:,} tokens of answers, {_saved(equal.saved_s, equal.saved_bytes)} saved"
    return f"equal requests at the same time: {equal.requests:,} not computed, {equal.running:,} running; {saved}"


def _saved(prefill_s: float, n_bytes: int) -> str:
    return f"{prefill_s:,.1f} s of prefill and {n_bytes / 1e6:,.1f} MB"


def _directory_text(index: DirectoryFigures) -> str:
    found = f"{index.hits:,} of {index.hits + index.misses:,} questions"
    return f"cache directory: {index.pages:,} pages, {index.bytes / 1e6:,.1f} MB; found for {found}"


def _answers(cache: AnswerFigures | SharedFigures | SimilarFigures) -> str:
    size = f"{cache.answers:,}, {cache.bytes / 1e6:,.1f} MB"
    return f"{size}, the oldest of {cache.oldest_s:,.0f} s, {cache.evicted:,} evicted{_of_callers(cache)}"


def _of_callers(cache: HostFigures | DiskFigures | AnswerFigures | SharedFigures | SimilarFigures) -> str:
    return f" ({cache.share_evicted:,} of callers with more than their part)" if cache.share_evicted else ""
