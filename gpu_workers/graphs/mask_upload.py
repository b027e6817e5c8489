"""The samples of a captured step that follow a grammar, and their masks, on their way to fixed addresses of the device.

Masks are written where they are copied from. The copy is queued before they are known, on a stream of its own, which waits for
them while the device computes the layers of the step. There is one buffer, because there is one step at a time whose masks are
known: those of the next step depend on tokens that this one samples, so whoever writes them has waited for this one.
"""

from __future__ import annotations

import numpy as np
import torch

from gpu_workers.cuda.host_number import HostNumber
from gpu_workers.cuda.kernels.sampling.masks import RowMasks
from gpu_workers.sampling.masked_logits import MaskedSamples

_FIELDS = 5  # int64 of each sample, in the order of `ConstrainedRows`
_NO_ROW = -1


class ConstrainedRows:
    """Views of the device's buffer for N samples, some of which may be padding: [N] int64 each."""

    def __init__(self, fields: torch.Tensor, words: torch.Tensor, n: int) -> None:
        """fields: [_FIELDS, most samples] int64; words: int32."""
        index, begins, self.slots, self.positions, self.drafts = (field[:n] for field in fields)
        self.masks = RowMasks(index, begins, words)


class MaskUpload:
    """One buffer on the host and its copy on a device. One thread expects masks, another one may give them."""

    def __init__(self, most: int, vocabulary: int, dummy_slot: int, device: torch.device) -> None:
        """most: samples of a step. vocabulary: of the logits; a mask may have more tokens, which are not copied."""
        self.most, self._n_words, self._dummy_slot = most, -(-vocabulary // 32), dummy_slot
        self.sizes = tuple(sorted({min(1 << power, most) for power in range(most.bit_length() + 1)}))
        n = _FIELDS * most + (most * (self._n_words + 1) + 1) // 2
        is_cuda = device.type == "cuda"
        self._on_host = torch.zeros(n, dtype=torch.int64, pin_memory=is_cuda)
        self._on_device = torch.zeros(n, dtype=torch.int64, device=device)
        self._stream = torch.cuda.Stream(device) if is_cuda else None
        self._given = HostNumber() if is_cuda else None  # of the newest step whose masks are there
        self._n_expected = 0
        self._fields, self._words = _split(self._on_host, most)
        self._fields[0] = _NO_ROW
        self._on_device.copy_(self._on_host)

    def rows(self, size: int) -> ConstrainedRows:
        """What a kernel reads for `size` samples. Before the first `send` all of them are padding."""
        return ConstrainedRows(*_split(self._on_device, self.most), size)

    def host_masks(self, n: int, n_words: int) -> np.ndarray:
        """Room for n masks: [n, n_words] int32, not initialised, to be written once the step before has ended."""
        if self._width(n, n_words) < n_words:
            return np.empty((n, n_words), np.int32)
        return self._words.numpy()[: n * n_words].reshape(n, n_words)

    def expect(self, n: int, n_words: int) -> tuple[int, int]:
        """Queues the copy of n masks of n_words words, which waits for `give`, and for which the current stream waits. Returns
        the number of this step, and the least of `sizes` that holds the samples."""
        self._n_expected += 1
        if self._stream is not None and self._given is not None:
            self._given.make_wait(self._stream, self._n_expected)
            with torch.cuda.stream(self._stream):
                self._copy(n, self._width(n, n_words))
            torch.cuda.current_stream(self._on_device.device).wait_stream(self._stream)
        return self._n_expected, next(size for size in self.sizes if size >= n)

    def give(self, number: int, samples: MaskedSamples) -> None:
        """The masks that were expected under this number, when the step before it has ended. On a CPU they are copied now.

        A copy is saved if samples.masks stand in the room that `host_masks` gave."""
        n = len(samples.index)
        masks, size = self._in_place(samples.masks), next(size for size in self.sizes if size >= n)
        fields, width = self._fields.numpy(), masks.shape[1]
        begins = np.arange(0, n * width, width)
        for field, values in zip(
            fields, (samples.index, begins, samples.slots, samples.positions - 1, samples.drafts), strict=True
        ):
            field[:n] = values
        fields[0, n:size], fields[2, n:size] = _NO_ROW, self._dummy_slot
        if self._given is None:
            self._copy(n, width)
        else:
            self._given.set(number)

    def _width(self, n: int, n_words: int) -> int:
        return n_words if n * n_words <= len(self._words) else self._n_words

    def _in_place(self, masks: np.ndarray) -> np.ndarray:
        if np.may_share_memory(masks, self._words.numpy()):
            return masks
        masks = masks[:, : self._n_words]
        room = self.host_masks(*masks.shape)
        np.copyto(room, masks)
        return room

    def _copy(self, n: int, width: int) -> None:
        n_copied = _FIELDS * self.most + (n * width + 1) // 2
        self._on_device[:n_copied].copy_(self._on_host[:n_copied], non_blocking=True)


def _split(buffer: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(fields [_FIELDS, most] int64, words int32) of a buffer."""
    return buffer[: _FIELDS * most].view(_FIELDS, most), buffer[_FIELDS * most :].view(torch.int32)
