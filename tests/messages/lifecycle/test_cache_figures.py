"""The caches of a server, as the statistics of its actors tell them."""

from __future__ import annotations

import msgspec

from messages.lifecycle.cache_figures import (
    AnswerFigures,
    CacheFigures,
    CoalescedFigures,
    DirectoryFigures,
    DiskFigures,
    EvictionFigures,
    ExchangeFigures,
    HostFigures,
    PrefixFigures,
    SharedFigures,
    SimilarFigures,
    cache_figures,
)

SCHEDULER = {
    "pages": 100.0, "pages_held": 7.0, "pages_cached": 50.0, "pages_reused": 20.0, "pages_evicted": 3.0,
    "prompt_tokens": 800.0, "cached_tokens": 320.0, "prefill_saved_s": 1.25,
    "lru_hits": 20.0, "lru_evictions": 3.0, "lru_ghost_hits": 2.0, "lru_shadow_hits": 0.0,
    "pages_bytes": 4000.0, "pages_oldest_s": 60.5, "pages_saved_bytes": 2500.0,
}  # fmt: skip
GATEWAY = {"answers_kept": 2.0, "answer_bytes": 2048.0, "answer_hits": 5.0, "answer_misses": 9.0, "answer_tokens": 640.0}
GATEWAY |= {"answer_evicted": 1.0, "answer_oldest_s": 12.5}
GATEWAY |= {"answer_prompt_tokens": 70.0, "answer_saved_s": 0.5, "answer_saved_bytes": 700.0}


def test_figures_are_summed_up_over_actors_of_one_role() -> None:
    actors = [("scheduler/0", SCHEDULER), ("scheduler/1", SCHEDULER), ("gateway/0", GATEWAY), ("gateway/1", GATEWAY)]
    index = {"hashes": 57.0, "queries": 12.0, "prefix_hits": 8.0, "prefix_misses": 3.0, "index_bytes": 4100.0}
    found = cache_figures([*actors, ("cache_directory/0", index), ("worker/0.0", {"steps": 3.0})])
    assert found.prefix == PrefixFigures(
        200, 14, 100, 40, 6, 1600, 640, 2.5, 8000, 60.5, {"lru": EvictionFigures(40, 6, 4, 0)}, 5000
    )
    assert found.answers == AnswerFigures(4, 4096, 10, 18, 1280, 2, 12.5, 140, 1.0, 1400)
    assert found.directory == DirectoryFigures(57, 12, 8, 3, 4100)


def test_answers_for_similar_questions_are_those_of_the_directory() -> None:
    figures = {
        "similar_answers": 3.0,
        "similar_bytes": 9000.0,
        "similar_hits": 5.0,
        "similar_misses": 2.0,
        "similar_evicted": 1.0,
        "similar_oldest_s": 40.0,
    }
    saved = {"similar_prompt_tokens": 30.0, "similar_saved_s": 0.25, "similar_saved_bytes": 300.0}
    directory = ("cache_directory/0", {"hashes": 57.0, "queries": 12.0, **figures})
    found = cache_figures([directory, ("gateway/0", saved), ("gateway/1", saved)])
    assert found.similar == SimilarFigures(3, 9000, 5, 2, 1, 40.0, 60, 0.5, 600)


def test_shared_answers_are_those_of_the_directory() -> None:
    figures = {
        "shared_answers": 7.0,
        "shared_bytes": 4096.0,
        "shared_evicted": 2.0,
        "shared_oldest_s": 30.0,
        "shared_hits": 6.0,
    }
    saved = {"shared_prompt_tokens": 30.0, "shared_saved_s": 0.25, "shared_saved_bytes": 300.0}
    found = cache_figures([("gateway/0", saved), ("cache_directory/0", figures), ("gateway/1", saved)])
    assert found.shared == SharedFigures(7, 4096, 2, 30.0, 6, 60, 0.5, 600)


def test_equal_requests_at_the_same_time_are_those_of_all_gateways() -> None:
    one = {"coalesced": 3.0, "coalesced_tokens": 40.0, "coalesced_running": 2.0}
    one |= {"coalesced_prompt_tokens": 30.0, "coalesced_saved_s": 0.25, "coalesced_saved_bytes": 300.0}
    found = cache_figures([("gateway/0", one), ("gateway/1", one)])
    assert found.coalesced == CoalescedFigures(4, 6, 80, 60, 0.5, 600)


def test_the_host_tiers_of_all_schedulers_are_summed_up() -> None:
    one = {
        "host_places": 10.0,
        "host_pages": 4.0,
        "host_stored": 6.0,
        "host_loaded": 3.0,
        "host_failed": 1.0,
        "host_load_s": 0.25,
        "host_bytes": 400.0,
        "host_evicted": 2.0,
        "host_oldest_s": 30.0,
        "host_saved_s": 1.5,
        "host_saved_bytes": 90.0,
        "host_in_use": 7.0,
    }
    assert cache_figures([("scheduler/0", one), ("scheduler/1", one)]).host == HostFigures(
        20, 8, 12, 6, 2, 0.5, 800, 4, 30.0, 3.0, 180, in_use=14
    )


def test_the_moves_of_all_schedulers_are_summed_up() -> None:
    one = {
        "exchange_places": 10.0,
        "exchange_lent": 4.0,
        "exchange_moved": 6.0,
        "exchange_failed": 1.0,
        "exchange_move_s": 0.25,
        "exchange_pages": 7.0,
        "exchange_bytes": 700.0,
        "exchange_evicted": 1.0,
        "exchange_oldest_s": 9.0,
        "exchange_saved_s": 1.5,
        "exchange_saved_bytes": 90.0,
    }
    assert cache_figures([("scheduler/0", one), ("scheduler/1", one)]).exchange == ExchangeFigures(
        20, 8, 12, 2, 0.5, 14, 1400, 2, 9.0, 3.0, 180
    )


def test_the_disk_tiers_of_all_schedulers_are_summed_up() -> None:
    one = {
        "disk_places": 10.0,
        "disk_pages": 4.0,
        "disk_written": 6.0,
        "disk_read": 3.0,
        "disk_failed": 1.0,
        "disk_read_s": 0.25,
        "disk_bytes": 400.0,
        "disk_evicted": 2.0,
        "disk_oldest_s": 30.0,
        "disk_saved_s": 1.5,
        "disk_saved_bytes": 90.0,
    }
    assert cache_figures([("scheduler/0", one), ("scheduler/1", one)]).disk == DiskFigures(
        20, 8, 12, 6, 2, 0.5, 800, 4, 30.0, 3.0, 180
    )


def test_a_cache_that_nobody_has_is_not_shown() -> None:
    found = cache_figures([("scheduler/0", {"waiting": 0.0}), ("gateway/0", {"active": 1.0})])
    assert found == CacheFigures()
    assert msgspec.json.encode(found) == b"{}"
