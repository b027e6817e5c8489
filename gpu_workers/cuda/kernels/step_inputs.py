"""The first kernel of every captured step: it reads the step's inputs from the device's tables, by slot and position."""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.cuda.kernels.launch import dependent_launch
from messages.steps import PAGE_TOKENS

_PAGES_AT_ONCE = 128


@triton.jit(do_not_specialize=["n_table_rows"], do_not_specialize_on_alignment=["SLOTS", "POSITIONS", "TOKEN_IDS"])
def _step_inputs_kernel(
    SLOTS, POSITIONS, TOKENS, PAGES, TOKEN_IDS, SLOT_MAPPING, LENGTHS, TABLE,
    stride_tokens, stride_pages, stride_table, dummy_slot, n_table_rows,
    PAGE: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(SLOTS + row)
    position = tl.load(POSITIONS + row)
    tl.store(TOKEN_IDS + row, tl.load(TOKENS + slot * stride_tokens + position).to(tl.int64))
    page = tl.load(PAGES + slot * stride_pages + position // PAGE).to(tl.int64)
    tl.store(SLOT_MAPPING + row, page * PAGE + position % PAGE)
    length = tl.where(slot == dummy_slot, 0, position + 1).to(tl.int32)
    tl.store(LENGTHS + row, length)
    n_pages = tl.where(row < n_table_rows, tl.cdiv(length, PAGE), 0)
    for first in range(0, n_pages, BLOCK):
        index = first + tl.arange(0, BLOCK)
        pages = tl.load(PAGES + slot * stride_pages + index, mask=index < n_pages, other=0)
        tl.store(TABLE + row * stride_table + index, pages, mask=index < n_pages)


@dataclass(frozen=True)
class StepInputs:
    """What `step_inputs` writes for n tokens; the first m of them are decode rows. All tensors are on the device."""

    token_ids: torch.Tensor  # [n] int64
    slot_mapping: torch.Tensor  # [n] int64
    lengths: torch.Tensor  # [n] int32; 0 for the dummy slot
    page_table: torch.Tensor  # [m, max_pages] int32; entries after the length keep their old values

    @classmethod
    def allocate(cls, n_tokens: int, n_rows: int, state: DeviceState) -> StepInputs:
        """Tensors for n_tokens tokens and n_rows rows on the state's device; the page table is filled with the dummy page."""
        device = state.device
        return cls(
            token_ids=torch.zeros(n_tokens, dtype=torch.int64, device=device),
            slot_mapping=torch.zeros(n_tokens, dtype=torch.int64, device=device),
            lengths=torch.zeros(n_tokens, dtype=torch.int32, device=device),
            page_table=torch.full((n_rows, state.pages.shape[1]), state.dummy_page, dtype=torch.int32, device=device),
        )

    def first(self, n_tokens: int, n_rows: int) -> StepInputs:
        """Views of the first n_tokens tokens and n_rows rows."""
        return StepInputs(
            self.token_ids[:n_tokens], self.slot_mapping[:n_tokens], self.lengths[:n_tokens], self.page_table[:n_rows]
        )


def step_inputs(slots: torch.Tensor, positions: torch.Tensor, state: DeviceState, inputs: StepInputs) -> None:
    """Fills `inputs` for the tokens at positions[i] of slots[i]. slots, positions: [n] int64 on the state's device."""
    pdl = dependent_launch(slots.device)
    _step_inputs_kernel[(slots.shape[0],)](
        slots, positions, state.tokens, state.pages, inputs.token_ids, inputs.slot_mapping, inputs.lengths, inputs.page_table,
        state.tokens.stride(0), state.pages.stride(0), inputs.page_table.stride(0), state.n_slots,
        inputs.page_table.shape[0], PAGE=PAGE_TOKENS, BLOCK=_PAGES_AT_ONCE, PDL=pdl, num_warps=1, launch_pdl=pdl,
    )  # fmt: skip
