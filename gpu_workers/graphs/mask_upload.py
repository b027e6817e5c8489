"""The samples of a captured step that follow a grammar, and their masks, on their way to fixed addresses of the device.

Masks are written where they are copied from, and the copy runs on a stream of its own while the device computes the layers of
the step. There is one buffer, because there is one step at a time whose masks are known: those of the next step depend on
tokens that this one samples, so whoever writes them has waited for this one.
"""

from __future__ import annotations

import numpy as np
import torch

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
    """One buffer on the host and its copy on a device. Used by one thread."""

    def __init__(self, most: int, vocabulary: int, dummy_slot: int, device: torch.device) -> None:
        """most: samples of a step. vocabulary: of the logits; a mask may have more tokens, which are not copied."""
        self.most, self._n_words, self._dummy_slot = most, -(-vocabulary // 32), dummy_slot
        self.sizes = tuple(sorted({min(1 << power, most) for power in range(most.bit_length() + 1)}))
        n = _FIELDS * most + (most * (self._n_words + 1) + 1) // 2
        is_cuda = device.type == "cuda"
        self._on_host = torch.zeros(n, dtype=torch.int64, pin_memory=is_cuda)
        self._on_device = torch.zeros(n, dtype=torch.int64, device=device)
        self._stream = torch.cuda.Stream(device) if is_cuda else None
        self._fields, self._words = _split(self._on_host, most)
        self._fields[0] = _NO_ROW
        self._on_device.copy_(self._on_host)

    def rows(self, size: int) -> ConstrainedRows:
        """What a kernel reads for `size` samples. Before the first `send` all of them are padding."""
        return ConstrainedRows(*_split(self._on_device, self.most), size)

    def host_masks(self, n: int, n_words: int) -> np.ndarray:
        """Room for n masks: [n, n_words] int32, not initialised, to be written once the step before has ended."""
        words = self._words.numpy()
        return words[: n * n_words].reshape(n, n_words) if n * n_words <= len(words) else np.empty((n, n_words), np.int32)

    def send(self, samples: MaskedSamples) -> int:
        """Queues the copy, which the current stream waits for. Returns the least of `sizes` that holds the samples.

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
        self._copy(_FIELDS * self.most + (n * width + 1) // 2)
        return size

    def _in_place(self, masks: np.ndarray) -> np.ndarray:
        if np.may_share_memory(masks, self._words.numpy()):
            return masks
        masks = masks[:, : self._n_words]
        room = self.host_masks(*masks.shape)
        np.copyto(room, masks)
        return room

    def _copy(self, n: int) -> None:
        if self._stream is None:
            self._on_device[:n].copy_(self._on_host[:n])
            return
        with torch.cuda.stream(self._stream):
            self._on_device[:n].copy_(self._on_host[:n], non_blocking=True)
        torch.cuda.current_stream(self._on_device.device).wait_stream(self._stream)


def _split(buffer: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(fields [_FIELDS, most] int64, words int32) of a buffer."""
    return buffer[: _FIELDS * most].view(_FIELDS, most), buffer[_FIELDS * most :].view(torch.int32)
