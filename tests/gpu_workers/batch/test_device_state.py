"""What a plan changes on the device: tokens, drafts, pages, and the rows of sampling, which are those of the host."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
import torch

from gpu_workers.batch import device_state
from gpu_workers.batch.device_state import SAMPLING_WORDS, DeviceState, allocate_device_state
from gpu_workers.batch.sampling_table import SAMPLING_ROW, SamplingTable, column_index
from gpu_workers.batch.uploads import upload_together
from messages.generation.sampling import Sampling
from messages.generation.terms import RankTerms
from messages.steps import NewSequence, Plan
from messages.wire.arrays import EMPTY_I32, int32s

N_SLOTS, MAX_LENGTH, DUMMY_PAGE = 4, 40, 9
FIRST = NewSequence(
    slot=2, n_tokens=3, n_prompt=2, terms=RankTerms(min_tokens=5, stop_tokens=[7]),
    sampling=Sampling(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.05, seed=2**62 + 1,
        presence_penalty=0.25, frequency_penalty=-0.5, repetition_penalty=1.5, logprobs=2,
    ),
)  # fmt: skip
SECOND = NewSequence(slot=0, n_tokens=1, n_prompt=1, sampling=Sampling(temperature=0.0))
PLAN = Plan(
    epoch=1, step=1, n_steps=1, new=[FIRST, SECOND], new_tokens=int32s([11, 12, 13, 14]),
    page_slots=int32s([2, 0, 2]), page_indices=int32s([0, 0, 1]), page_ids=int32s([3, 1, 5]),
    row_slots=int32s([2, 0]), row_starts=int32s([2, 0]), row_counts=int32s([3, 1]), row_samples=int32s([1, 1]),
    draft_counts=int32s([2, 0]), draft_ids=int32s([21, 22]),
)  # fmt: skip


@pytest.fixture
def state() -> DeviceState:
    return allocate_device_state(N_SLOTS, MAX_LENGTH, DUMMY_PAGE, "cpu")


def rows_of(state: DeviceState) -> np.ndarray:
    """The device's rows of sampling: [n_slots + 1] SAMPLING_ROW."""
    return state.sampling.numpy().view(SAMPLING_ROW).reshape(-1)


def test_a_row_fills_whole_words() -> None:
    assert SAMPLING_ROW.itemsize == 8 * SAMPLING_WORDS


def test_every_slot_is_greedy_at_first(state: DeviceState) -> None:
    table = SamplingTable(1)
    table.put(NewSequence(slot=0, n_tokens=0, n_prompt=0, sampling=Sampling(temperature=0.0)))
    assert (rows_of(state) == table.values_of(np.zeros(N_SLOTS + 1, np.int64))).all()


def test_the_device_has_the_rows_of_the_host(state: DeviceState) -> None:
    table = SamplingTable(N_SLOTS)
    for new in PLAN.new:
        table.put(new)
    before = rows_of(state).copy()
    state.write(PLAN, table)
    slots = np.array([0, 2])
    assert (rows_of(state)[slots] == table.values_of(slots)).all()
    others = [1, 3, N_SLOTS]
    assert (rows_of(state)[others] == before[others]).all()


def test_a_column_is_found_by_its_index(state: DeviceState) -> None:
    table = SamplingTable(N_SLOTS)
    table.put(FIRST)
    (row,) = table.values_of(np.array([2]))
    as_float, as_int = (np.frombuffer(row.tobytes(), dtype) for dtype in ("<f4", "<i8"))
    assert as_float[column_index("min_p")] == np.float32(0.05)
    assert as_float[column_index("temperature")] == 0.5
    assert as_int[column_index("seed")] == 2**62 + 1
    assert as_int[column_index("banned_until")] == 2 + 5


def test_tokens_and_drafts_go_to_their_positions(state: DeviceState) -> None:
    state.write(PLAN)
    expected = np.zeros((N_SLOTS + 1, MAX_LENGTH + 1), np.int32)
    expected[2, :5] = 11, 12, 13, 21, 22
    expected[0, 0] = 14
    assert (state.tokens.numpy() == expected).all()


def test_pages_go_to_their_entries(state: DeviceState) -> None:
    state.write(PLAN)
    expected = np.full((N_SLOTS + 1, 3), DUMMY_PAGE)
    expected[2, :2], expected[0, 0] = (3, 5), 1
    assert (state.pages.numpy() == expected).all()


def test_all_that_a_plan_changes_is_uploaded_at_once(state: DeviceState, monkeypatch: pytest.MonkeyPatch) -> None:
    table, uploads = SamplingTable(N_SLOTS), list[int]()

    def counted(arrays: Sequence[np.ndarray], device: torch.device) -> list[torch.Tensor]:
        uploads.append(sum(array.nbytes for array in arrays))
        return upload_together(arrays, device)

    monkeypatch.setattr(device_state, "upload_together", counted)
    state.write(PLAN, table)
    places, tokens, drafts, pages, rows = 4 + 2 + 3 + 2, 2, 1, 2, 2 * SAMPLING_WORDS
    assert uploads == [8 * (places + tokens + drafts + pages + rows)]
    changes_nothing = Plan(
        epoch=1, step=2, n_steps=1, new=[], new_tokens=EMPTY_I32, page_slots=EMPTY_I32, page_indices=EMPTY_I32,
        page_ids=EMPTY_I32, row_slots=int32s([2]), row_starts=int32s([5]), row_counts=int32s([1]), row_samples=int32s([1]),
    )  # fmt: skip
    state.write(changes_nothing, table)
    assert len(uploads) == 1


@pytest.mark.parametrize("n_tokens", [1, 2, 5, 8])
def test_tokens_as_they_come_from_the_wire_are_written(state: DeviceState, n_tokens: int) -> None:
    received = np.frombuffer(int32s(range(50, 50 + n_tokens)).tobytes(), np.dtype("<i4"))  # read-only
    new = NewSequence(slot=1, n_tokens=n_tokens, n_prompt=n_tokens, sampling=Sampling(temperature=0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state.write(msgspec.structs.replace(PLAN, new=[new], new_tokens=received))
    assert state.tokens[1, :n_tokens].tolist() == received.tolist()


@pytest.mark.parametrize(("sizes", "name"), [((0, 1, 1), "n_slots"), ((1, 0, 1), "max_length"), ((1, 1, -1), "dummy_page")])
def test_too_small_a_number_is_refused_by_name(sizes: tuple[int, int, int], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected at least"):
        allocate_device_state(*sizes, "cpu")
