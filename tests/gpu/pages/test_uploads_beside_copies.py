"""The numbers of steps do not wait for pages that copy engines have before them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from gpu_workers.batch.uploads import copy_staged, go_around, upload, upload_together

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]
_DEVICE = torch.device("cuda")
_ARRAYS = (
    np.arange(5000, dtype=np.int64), np.arange(7, dtype=np.int32), np.array([True, False, True]), np.zeros(0, np.float32),
    np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6), np.ones((3, 5), bool),
)  # fmt: skip


@pytest.fixture
def copies() -> Iterator[torch.cuda.Event]:
    """Half a second of copies to the device and from it, queued on a stream of their own; the event ends them."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    from gpu_workers.cuda.kernels.pages.pinned_memory import copy_pinned, warm_pinned_copies

    warm_pinned_copies(_DEVICE)
    upload(_ARRAYS[0], _DEVICE)
    pinned = [torch.empty(1000, dtype=torch.int64, pin_memory=True) for _ in range(200)]  # takes long the first time
    del pinned
    on_host, on_device = (
        torch.zeros(64 << 20, dtype=torch.uint8, pin_memory=True),
        torch.zeros(64 << 20, dtype=torch.uint8).cuda(),
    )
    torch.cuda.synchronize()
    end, stream = torch.cuda.Event(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(200):
            on_device.copy_(on_host, non_blocking=True)
            on_host.copy_(on_device, non_blocking=True)
        end.record()
    go_around(copy_pinned)
    yield end
    go_around(None)
    torch.cuda.synchronize()


def test_numbers_go_around_the_copies(copies: torch.cuda.Event) -> None:
    there = [upload(array, _DEVICE) for array in _ARRAYS] + upload_together((_ARRAYS[0], _ARRAYS[0][:3]), _DEVICE)
    back = [torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in there]
    for target, source in zip(back, there, strict=True):
        copy_staged(target, source)
    done = torch.cuda.Event()
    done.record()
    done.synchronize()
    assert not copies.query(), "the numbers have waited for the copies"
    for got, array in zip(back, (*_ARRAYS, _ARRAYS[0], _ARRAYS[0][:3]), strict=True):
        assert np.array_equal(got.numpy(), array)
        assert got.numpy().dtype == array.dtype


def test_memory_of_an_upload_is_not_used_again_too_soon(copies: torch.cuda.Event) -> None:
    torch.cuda._sleep(200_000_000)  # the kernels of all uploads run later
    there = [upload(np.full(1000, number), _DEVICE) for number in range(200)]
    assert not copies.query()
    assert [int(tensor[0]) for tensor in there] == list(range(200))
    assert all(bool((tensor == number).all()) for number, tensor in enumerate(there))
