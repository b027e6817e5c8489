"""The lines of caches in the status table."""

from __future__ import annotations

import msgspec
import pytest

from messages.lifecycle.tree import StatusReport, TreeState
from supervisor.children.child_record import ChildRecord
from supervisor.operator.status_table import status_text
from tests.support.supervisor.trees import group


def _tier_statistics() -> dict[str, float]:
    """Of a scheduler with a host tier, a disk tier and an exchange."""
    host = {"host_places": 4000.0, "host_pages": 3000.0, "host_stored": 5000.0, "host_loaded": 700.0, "host_load_s": 1.24}
    host |= {"host_bytes": 3e8, "host_evicted": 9.0, "host_oldest_s": 75.0, "host_saved_s": 20.51, "host_saved_bytes": 2.5e8}
    disk = {"disk_places": 9000.0, "disk_pages": 8000.0, "disk_written": 8500.0, "disk_read": 600.0, "disk_read_s": 2.51}
    disk |= {"disk_failed": 4.0, "disk_bytes": 7e8, "disk_evicted": 5.0, "disk_oldest_s": 75.0}
    disk |= {"disk_saved_s": 7.0, "disk_saved_bytes": 2.2e8}
    moves = {"exchange_places": 90.0, "exchange_lent": 70.0, "exchange_moved": 60.0, "exchange_move_s": 0.52}
    moves |= {"exchange_pages": 40.0, "exchange_bytes": 2e8, "exchange_evicted": 3.0, "exchange_oldest_s": 8.0}
    moves |= {"exchange_saved_s": 1.5, "exchange_saved_bytes": 2.1e7}
    return host | disk | moves


def _lines(scheduler: dict[str, float], gateway: dict[str, float], directory: dict[str, float]) -> list[str]:
    """The status of a server whose actors say this of themselves."""
    said = (("scheduler/0", scheduler), ("gateway/0", gateway), ("cache_directory/0", directory))
    children = [
        msgspec.structs.replace(ChildRecord(group(name).children[0]).status(0.0, with_metrics=False), statistics=statistics)
        for name, statistics in said
    ]
    return status_text(StatusReport(TreeState.SERVING, 1.0, "m", "u", children), 200).splitlines()


def test_the_status_says_what_caches_of_pages_hold_and_save() -> None:
    pages = {"pages": 8192.0, "pages_held": 96.0, "pages_cached": 5024.0, "pages_evicted": 12.0}
    pages |= {"pages_bytes": 5.12e8, "pages_oldest_s": 640.2}
    reuse = {"prompt_tokens": 1000.0, "cached_tokens": 410.0, "prefill_saved_s": 12.34, "pages_saved_bytes": 1.5e7}
    evictions = {"lru_hits": 20.0, "lru_evictions": 12.0, "lru_ghost_hits": 3.0, "lru_shadow_hits": 0.0}
    index = {"hashes": 5120.0, "index_bytes": 5e5, "prefix_hits": 9.0, "prefix_misses": 3.0}
    lines = _lines(pages | reuse | evictions | _tier_statistics(), {}, index)
    said = "prefix cache: 96 of 8,192 pages held, 5,024 cached, 12 evicted"
    saved = "41% of prompt tokens reused, 12.3 s of prefill and 15.0 MB saved"
    assert f"{said}; 512.0 MB, the oldest of 640 s; {saved}" in lines
    host_said = (
        "host cache: 3,000 of 4,000 pages, 5,000 stored, 700 came back in 1.2 s and saved 20.5 s of prefill and 250.0 MB"
    )
    disk_said = (
        "disk cache: 8,000 of 9,000 pages, 8,500 written, 600 came back in 2.5 s and saved 7.0 s of prefill and 220.0 MB"
    )
    for said in (
        f"{host_said}, 0 missing or damaged, 9 evicted; 300.0 MB",
        f"{disk_said}, 4 missing or damaged, 5 evicted; 700.0 MB",
    ):
        assert f"{said}, the next to go was used 75 s ago" in lines
    moved = "moved between replicas: 60 pages in 0.5 s, which saved 1.5 s of prefill and 21.0 MB"
    moved += ", 70 offered, 0 missing or damaged; 40 of 90 places in use"
    assert f"{moved}, 3 evicted; 200.0 MB, the next to go was used 8 s ago" in lines
    assert "eviction: lru 20 pages reused, 12 evicted, 3 computed again" in lines
    assert "cache directory: 5,120 pages, 0.5 MB; found for 9 of 12 questions" in lines


def test_the_status_says_what_caches_of_answers_hold_and_save() -> None:
    answers = {"answers_kept": 3.0, "answer_bytes": 1.5e6, "answer_hits": 5.0, "answer_misses": 15.0}
    answers |= {"answer_evicted": 2.0, "answer_oldest_s": 1200.4, "answer_saved_s": 3.0, "answer_saved_bytes": 9e6}
    answers |= {"shared_saved_s": 1.0, "shared_saved_bytes": 3e6, "similar_saved_s": 2.0, "similar_saved_bytes": 4e6}
    answers |= {"coalesced": 6.0, "coalesced_tokens": 4000.0, "coalesced_running": 2.0, "coalesced_saved_s": 0.5}
    shared = {"shared_answers": 5.0, "shared_bytes": 3.5e6, "shared_evicted": 1.0}
    shared |= {"shared_oldest_s": 12.0, "shared_hits": 4.0}
    similar = {"similar_answers": 7.0, "similar_bytes": 2.5e6, "similar_hits": 4.0, "similar_misses": 6.0}
    similar |= {"similar_oldest_s": 90.0}
    lines = _lines({}, answers, shared | similar)
    found = "found for 5 of 20 requests, 3.0 s of prefill and 9.0 MB saved"
    assert f"kept answers: 3, 1.5 MB, the oldest of 1,200 s, 2 evicted; {found}" in lines
    found = "found 4 times, 1.0 s of prefill and 3.0 MB saved where others had computed them"
    assert f"shared answers: 5, 3.5 MB, the oldest of 12 s, 1 evicted; {found}" in lines
    found = "found for 4 of 10 questions, 2.0 s of prefill and 4.0 MB saved"
    assert f"answers for similar questions: 7, 2.5 MB, the oldest of 90 s, 0 evicted; {found}" in lines
    equal = "6 not computed, 2 running; 4,000 tokens of answers, 0.5 s of prefill and 0.0 MB saved"
    assert f"equal requests at the same time: {equal}" in lines


@pytest.mark.parametrize(("in_use", "said"), [(3500.0, " (3,500 in use)"), (4000.0, ""), (0.0, "")])
def test_the_status_says_how_large_a_host_tier_is_now(in_use: float, said: str) -> None:
    lines = _lines(_tier_statistics() | {"host_in_use": in_use}, {}, {})
    assert any(line.strip().startswith(f"host cache: 3,000 of 4,000 pages{said}, 5,000 stored") for line in lines), lines
