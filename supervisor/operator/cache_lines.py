"""The caches of a server in lines for the status table."""

from __future__ import annotations

from messages.lifecycle.cache_figures import (
    AnswerFigures,
    DiskFigures,
    ExchangeFigures,
    HostFigures,
    PrefixFigures,
    SimilarFigures,
    cache_figures,
)
from messages.lifecycle.tree import StatusReport


def cache_lines(report: StatusReport) -> list[str]:
    """One line for each cache that the actors of this report have."""
    found = cache_figures((child.name, child.statistics) for child in report.children)
    lines = [_prefix_text(found.prefix)] if found.prefix is not None else []
    lines += [_host_text(found.host)] if found.host is not None else []
    lines += [_disk_text(found.disk)] if found.disk is not None else []
    lines += [_exchange_text(found.exchange)] if found.exchange is not None else []
    lines += [_answers_text(found.answers)] if found.answers is not None else []
    return lines + ([_similar_text(found.similar)] if found.similar is not None else [])


def _prefix_text(cache: PrefixFigures) -> str:
    share = f"{cache.cached_tokens / cache.prompt_tokens:.0%}" if cache.prompt_tokens else "none"
    pages = f"{cache.held:,} of {cache.pages:,} pages held, {cache.cached:,} cached, {cache.evicted:,} evicted"
    return f"prefix cache: {pages}; {share} of prompt tokens reused, {cache.prefill_saved_s:,.1f} s of prefill saved"


def _host_text(tier: HostFigures) -> str:
    pages = f"{tier.pages:,} of {tier.places:,} pages, {tier.stored:,} stored, {tier.loaded:,} came back"
    return f"host cache: {pages} in {tier.load_s:,.1f} s, {tier.failed:,} missing or damaged"


def _disk_text(tier: DiskFigures) -> str:
    pages = f"{tier.pages:,} of {tier.places:,} pages, {tier.written:,} written, {tier.read:,} came back"
    return f"disk cache: {pages} in {tier.read_s:,.1f} s, {tier.failed:,} missing or damaged"


def _exchange_text(moves: ExchangeFigures) -> str:
    pages = f"{moves.moved:,} pages in {moves.move_s:,.1f} s, {moves.lent:,} offered, {moves.failed:,} missing or damaged"
    return f"moved between replicas: {pages}"


def _answers_text(cache: AnswerFigures) -> str:
    found = f"{cache.hits:,} of {cache.hits + cache.misses:,} requests"
    return f"kept answers: {cache.answers:,}, {cache.bytes / 1e6:,.1f} MB; found for {found}"


def _similar_text(cache: SimilarFigures) -> str:
    found = f"{cache.hits:,} of {cache.hits + cache.misses:,} questions"
    return f"answers for similar questions: {cache.answers:,}, {cache.bytes / 1e6:,.1f} MB; found for {found}"
