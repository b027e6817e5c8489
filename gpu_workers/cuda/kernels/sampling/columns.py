"""The columns of `DeviceState.sampling` as constants of kernels. They follow from `gpu_workers.batch.sampling_table`.

from gpu_workers.cuda.kernels.sampling.columns import MIN_P, of_slot
min_p = of_slot(SAMPLING, slot, MIN_P, tl.float32)
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

from gpu_workers.batch.device_state import SAMPLING_WORDS
from gpu_workers.batch.sampling_table import column_index

_ROW_WORDS = tl.constexpr(SAMPLING_WORDS)


def __getattr__(name: str) -> tl.constexpr:
    """The index of the column `name`, in capitals, counted in elements of its own type. Raises: AttributeError."""
    try:
        return tl.constexpr(column_index(name.lower()))
    except KeyError:
        raise AttributeError(f"{name}: expected a column of SamplingRows in capitals") from None


@triton.jit
def of_slot(SAMPLING, slot, COLUMN: tl.constexpr, TYPE: tl.constexpr):
    """A column of a slot's row. SAMPLING: `DeviceState.sampling`; COLUMN: a constant of this file; TYPE: its element type."""
    return tl.load((SAMPLING + slot * _ROW_WORDS).to(tl.pointer_type(TYPE)) + COLUMN)
