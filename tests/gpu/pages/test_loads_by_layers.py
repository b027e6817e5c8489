"""A large load comes layer after layer: a step that waits for each layer reads what was stored, launched or captured."""

from __future__ import annotations

import dataclasses
import threading

import msgspec
import pytest
import torch

from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.vault.page_places import QueuedMoves
from messages.wire.arrays import int32s
from tests.support.pages.gpu_tier import N_PLACES, SHAPE, TestedTier, spin, tier_of
from tests.support.pages.tier_bench import CAPACITY, NOTHING, moves_of

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]
_DEADLINE_S = 60.0


@pytest.fixture
def kv() -> KvPages:
    """Twice as many pages as places, the first ones with different numbers, with gates."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    from gpu_workers.runner.cuda_backend import layer_gates

    pages = KvPages.allocate(SHAPE, 2 * N_PLACES, "cuda")
    pages.storage[:N_PLACES].normal_()
    return dataclasses.replace(pages, gates=layer_gates(pages))


@pytest.fixture
def tier(kv: KvPages) -> TestedTier:
    """With the first pages at its places."""
    tier = tier_of(kv)
    stored = [(page, page, 2 * page + 1) for page in range(N_PLACES)]
    assert tier.queue(moves_of(stored, [])).wait().failed == []
    return tier


def _begins_early(tier: TestedTier) -> bool:
    """A plan of one prompt that reads the last page follows. True if it may begin before the load has ended."""
    rows = {"row_slots": [0], "row_starts": [0], "row_counts": [2], "row_samples": [1]}
    pages = {"page_ids": [2 * N_PLACES - 1], "page_slots": [0], "page_indices": [0]}
    columns = {name: int32s(column) for name, column in {**rows, **pages}.items()}
    return tier.copies.hold(msgspec.structs.replace(NOTHING, **columns), SlotTable(CAPACITY))


def _load(tier: TestedTier, order: list[int]) -> QueuedMoves:
    """Load all places to the second half of the pages, which takes a while to begin. order: of the pages."""
    with torch.cuda.stream(tier.copies._stream._stream):  # pyright: ignore[reportAttributeAccessIssue]
        spin(0.05)
    return tier.queue(moves_of([], [(place, N_PLACES + order[place], 2 * place + 1) for place in range(N_PLACES)]))


@pytest.mark.parametrize("order", [list(range(N_PLACES)), [N_PLACES - 1 - i for i in range(N_PLACES)]])
def test_a_step_reads_each_layer_when_it_has_come(kv: KvPages, tier: TestedTier, order: list[int]) -> None:
    kv.storage[N_PLACES:].zero_()
    queued = _load(tier, order)
    assert _begins_early(tier)
    arriving = kv.arriving
    keys = [arriving.keys[layer][N_PLACES:].clone() for layer in range(SHAPE.n_layers)]
    assert queued.wait().failed == []
    for layer in range(SHAPE.n_layers):
        assert torch.equal(keys[layer], kv.keys[layer][[order.index(i) for i in range(N_PLACES)]])
    assert torch.equal(kv.storage[N_PLACES:], kv.storage[[order.index(i) for i in range(N_PLACES)]])


def test_a_captured_step_reads_each_layer_and_waits_for_no_later_load(kv: KvPages, tier: TestedTier) -> None:
    out = [torch.zeros_like(keys[N_PLACES:]) for keys in kv.keys]
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="relaxed")
        arriving = kv.arriving
        for layer in range(SHAPE.n_layers):
            out[layer].copy_(arriving.keys[layer][N_PLACES:])
        graph.capture_end()
    for number in range(3):
        kv.storage[N_PLACES:].zero_()
        kv.storage[:N_PLACES].normal_()
        stored = [(page, page, 2 * page + 1) for page in range(N_PLACES)]
        assert tier.queue(moves_of(stored, [])).wait().failed == []
        first = _load(tier, list(range(N_PLACES)))
        assert _begins_early(tier), number
        graph.replay()
        end = torch.cuda.Event()
        end.record()
        second = _load(tier, list(range(N_PLACES)))  # begins after the step
        assert _ends(end), "the step waits for a load that waits for the step"
        assert first.wait().failed == second.wait().failed == []
        assert all(torch.equal(out[layer], kv.keys[layer][:N_PLACES]) for layer in range(SHAPE.n_layers))
    torch.cuda.synchronize()
    graph.replay()  # nothing is loaded
    torch.cuda.synchronize()


def test_a_damaged_page_is_found_behind_a_step_that_has_begun(kv: KvPages, tier: TestedTier) -> None:
    tier.memory.places[5, SHAPE.bytes_per_page - 1] ^= 1
    queued = _load(tier, list(range(N_PLACES)))
    assert _begins_early(tier)
    assert queued.wait().failed == [5]


def _ends(event: torch.cuda.Event) -> bool:
    """True once the event is reached; False if that takes very long."""
    thread = threading.Thread(target=event.synchronize, daemon=True)
    thread.start()
    thread.join(_DEADLINE_S)
    return not thread.is_alive()
