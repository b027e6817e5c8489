"""The samples that follow a grammar, and their masks, reach the device as they were, beside padding that does nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpu_workers.graphs.mask_upload import MaskUpload
from gpu_workers.sampling.masked_logits import MaskedSamples

MOST, VOCABULARY, DUMMY = 11, 100, 7
N_WORDS = 4  # of the vocabulary


def samples_of(n: int, masks: np.ndarray) -> MaskedSamples:
    index = np.arange(n, dtype=np.int64)[::-1]
    return MaskedSamples(index, index // 2, index + 20, index + 50, masks)


def check(upload: MaskUpload, samples: MaskedSamples) -> None:
    n = len(samples.index)
    number, size = upload.expect(*samples.masks.shape)
    upload.give(number, samples)
    rows = upload.rows(size)
    assert rows.masks.index.tolist() == [*samples.index.tolist(), *[-1] * (size - n)]
    assert rows.slots.tolist() == [*samples.slots.tolist(), *[DUMMY] * (size - n)]
    assert rows.positions[:n].tolist() == (samples.positions - 1).tolist()
    assert rows.drafts[:n].tolist() == samples.drafts.tolist()
    for begin, mask in zip(rows.masks.begins[:n].tolist(), samples.masks, strict=True):
        assert rows.masks.words[begin : begin + N_WORDS].tolist() == mask[:N_WORDS].tolist()


@pytest.mark.parametrize("n_words", [N_WORDS, N_WORDS + 1, N_WORDS + 40])
def test_steps_of_any_size_arrive_whole(n_words: int) -> None:
    upload, rng = MaskUpload(MOST, VOCABULARY, DUMMY, torch.device("cpu")), np.random.default_rng(n_words)
    assert upload.rows(MOST).masks.index.tolist() == [-1] * MOST
    for n in (MOST, 1, 6, 2, 8):
        check(upload, samples_of(n, rng.integers(-(1 << 31), 1 << 31, (n, n_words)).astype(np.int32)))


def test_masks_that_are_written_in_place_are_not_copied() -> None:
    upload = MaskUpload(MOST, VOCABULARY, DUMMY, torch.device("cpu"))
    masks = upload.host_masks(5, N_WORDS + 1)
    masks[:] = np.arange(masks.size).reshape(masks.shape)
    check(upload, samples_of(5, masks))
    assert np.may_share_memory(masks, upload.host_masks(1, 1))


def test_graphs_are_few_and_hold_every_step() -> None:
    assert MaskUpload(MOST, VOCABULARY, DUMMY, torch.device("cpu")).sizes == (1, 2, 4, 8, 11)
    assert MaskUpload(16, VOCABULARY, DUMMY, torch.device("cpu")).sizes == (1, 2, 4, 8, 16)
