"""Steps laid out in captured sizes: whatever the plan, the device is told the same tokens, samples and rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.batch.step_arrays import StepArrays, build_step
from gpu_workers.cuda.kernels.attention.tiles import LEAST_WIDENED_TOKENS, TILE_FIELDS, WIDENED_BLOCK, list_tiles
from gpu_workers.graphs.mixed_sizes import MixedSize, arriving_sizes, choose_size, mixed_sizes, urgent_sizes
from messages.steps import Plan
from messages.wire.arrays import int32s

N_SLOTS, TILE_TOKENS, MAX_PAGES = 24, 32, 64
SIZES = mixed_sizes(N_SLOTS, 1024, TILE_TOKENS)


@st.composite
def steps(draw: st.DrawFn) -> StepArrays:
    """Plans of decode rows, chunks that sample or not, and rows with drafts, in any order."""
    slots = draw(st.lists(st.integers(0, N_SLOTS - 1), unique=True, min_size=1, max_size=N_SLOTS))
    kinds = [draw(st.sampled_from(["decode", "chunk", "drafts"])) for _ in slots]
    counts = [1 if kind == "decode" else draw(st.integers(2, 6 if kind == "drafts" else 200)) for kind in kinds]
    samples = [1 if kind != "chunk" else draw(st.integers(0, 1)) for kind in kinds]
    drafts = [count - 1 if kind == "drafts" else 0 for kind, count in zip(kinds, counts, strict=True)]
    starts = [draw(st.integers(0, 500)) for _ in slots]
    plan = Plan(
        epoch=1, step=1, n_steps=1, new=[], new_tokens=int32s([]),
        page_slots=int32s([]), page_indices=int32s([]), page_ids=int32s([]),
        row_slots=int32s(slots), row_starts=int32s(starts), row_counts=int32s(counts), row_samples=int32s(samples),
        draft_counts=int32s(drafts), draft_ids=int32s([1] * sum(drafts)),
    )  # fmt: skip
    table = np.arange(N_SLOTS * MAX_PAGES, dtype=np.int32).reshape(N_SLOTS, MAX_PAGES)
    return build_step(plan, table)


def tiles_of(step: StepArrays, room: int = 0) -> np.ndarray:
    n = step.n_decode
    return list_tiles(step.slots[n:], step.starts[n:], step.counts[n:], step.offsets[n:], TILE_TOKENS, room)


@given(steps())
def test_tiles_cover_every_token_of_long_rows_once(step: StepArrays) -> None:
    covered = []
    for slot, first, left, position, length, *_ in tiles_of(step).tolist():
        covered += [(first + i, slot, position + i) for i in range(min(left, TILE_TOKENS))]
        assert position + left == length
    n = step.n_decode
    expected = zip(range(n, len(step.positions)), step.token_slots[n:].tolist(), step.positions[n:].tolist(), strict=True)
    assert sorted(covered) == list(expected)


@given(steps(), st.integers(0, 40).map(lambda n: n * WIDENED_BLOCK))
def test_widened_keys_have_room_of_their_own(step: StepArrays, room: int) -> None:
    tiles = tiles_of(step, room)
    starts, taken = step.starts.tolist(), np.zeros(room, bool)
    for slot in np.unique(tiles[:, 0]).tolist():
        of_row = tiles[tiles[:, 0] == slot]
        [place], [n_tiles] = (np.unique(of_row[:, column]).tolist() for column in (5, 6))
        assert n_tiles == len(of_row)
        row = step.slots.tolist().index(slot)
        end = starts[row] + int(step.counts[row])
        if place >= 0:
            assert step.counts[row] >= LEAST_WIDENED_TOKENS
            assert place % WIDENED_BLOCK == 0
            padded = -(-end // WIDENED_BLOCK) * WIDENED_BLOCK
            assert place + padded <= room
            assert not taken[place : place + padded].any()
            taken[place : place + padded] = True
    if room == 0:
        assert (tiles[:, 5] == -1).all()


@given(steps())
def test_a_step_keeps_its_tokens_samples_and_tiles_in_a_size(step: StepArrays) -> None:
    tiles = tiles_of(step)
    size = choose_size(SIZES, step, len(tiles))
    if size is None:
        assert len(step.token_slots) - step.n_decode > 512 or len(step.sample_index) > 64 or len(tiles) > 16
        return
    words = np.full(size.n_words, -9, np.int64)
    size.place(step, tiles, N_SLOTS, words)
    slots, positions, sample_slots, sample_positions, sample_index, device_tiles = size.split(words)
    real = slots != N_SLOTS
    assert slots[real].tolist() == step.token_slots.tolist()
    assert positions[real].tolist() == step.positions.tolist()
    assert not positions[~real].any()
    assert np.flatnonzero(real[: size.rows]).tolist() == list(range(step.n_decode))
    n = len(step.sample_index)
    assert slots[sample_index[:n]].tolist() == sample_slots[:n].tolist() == step.sample_slots.tolist()
    assert positions[sample_index[:n]].tolist() == sample_positions[:n].tolist()
    assert (sample_slots[n:] == N_SLOTS).all()
    assert not sample_positions[n:].any()
    placed = device_tiles.reshape(-1, TILE_FIELDS)
    for slot, first, left, position, *_ in placed[: len(tiles)].tolist():
        assert slots[first : first + left].tolist() == [slot] * left
        assert positions[first] == position
    assert not placed[len(tiles) :].any()


@given(steps())
def test_the_chosen_size_is_the_first_with_room(step: StepArrays) -> None:
    n_tiles = len(tiles_of(step))
    size = choose_size(SIZES, step, n_tiles)
    fitting = [candidate for candidate in SIZES if candidate.has_room_for(step, n_tiles)]
    assert size == (fitting[0] if fitting else None)
    assert all(size.n_tokens <= other.n_tokens for other in fitting if size)


@pytest.mark.parametrize(("n_slots", "max_tokens", "n_ranks"), [(1, 16, 1), (8, 100, 2), (256, 8192, 1), (1000, 512, 4)])
def test_sizes_hold_what_they_promise(n_slots: int, max_tokens: int, n_ranks: int) -> None:
    sizes = mixed_sizes(n_slots, max_tokens, 42, n_ranks)
    assert len(set(sizes)) == len(sizes) <= (72 if n_ranks == 1 else 10)
    assert max(size.tokens for size in sizes) <= max_tokens
    assert max(size.rows for size in sizes) == n_slots
    for size in sizes:
        assert sum(map(len, size.split(np.zeros(size.n_words)))) == size.n_words
        assert size.tiles >= -(-size.tokens // 42)  # one prompt that fills it
    assert mixed_sizes(n_slots, 15, 42) == ()


def test_a_size_without_room_for_decode_rows_takes_prompts_only() -> None:
    assert MixedSize(0, 16, 16, 8) in mixed_sizes(64, 16, 32)


def test_steps_whose_pages_arrive_are_of_one_prompt() -> None:
    arriving = arriving_sizes(mixed_sizes(256, 500, 32))
    assert [(size.rows, size.tokens) for size in arriving] == [(0, 16), (0, 32), (0, 64), (0, 128), (0, 256)]
    assert arriving_sizes(()) == []


@pytest.mark.parametrize(("n_long", "n_drafts", "most_tokens"), [(24, 6, 64 + 192), (60, 3, 64 + 256), (12, 8, 64 + 128)])
def test_drafts_of_many_rows_take_a_size_of_about_their_tokens(n_long: int, n_drafts: int, most_tokens: int) -> None:
    n_tokens = n_long * (1 + n_drafts)
    counts = np.array([1] * (64 - n_long) + [1 + n_drafts] * n_long, np.int64)
    nothing, flat = np.zeros(64, np.int64), np.zeros(64 - n_long + n_tokens, np.int64)
    step = StepArrays(
        nothing, nothing, counts, np.cumsum(counts) - counts, 64 - n_long, 1, flat, flat, flat, flat, flat, flat,
        nothing.astype(np.int32), counts,
    )  # fmt: skip
    size = choose_size(mixed_sizes(256, 571, 32), step, n_long)
    assert size is not None
    assert size.n_tokens <= most_tokens


def test_urgent_steps_have_no_row_of_one_token() -> None:
    """Those share memory with the rows of other steps."""
    sizes = urgent_sizes(570, tile_tokens=32)
    assert [size.tokens for size in sizes] == [64, 128, 256, 384, 512]
    assert {size.rows for size in sizes} == {0}
    assert all(size.tiles >= size.tokens // 32 + size.samples for size in sizes)
