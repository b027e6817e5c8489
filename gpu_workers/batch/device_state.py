"""What a rank keeps on its device about each slot: tokens, pages, sampling. Written by the runner, read and advanced by decode
graphs, so that a step needs nothing from the host but the list of rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from messages.steps import PAGE_TOKENS


@dataclass(frozen=True)
class DeviceState:
    """Tables by slot. Slots 0 .. n_slots - 1 are the scheduler's; slot n_slots is the dummy that fills up batches.

    The dummy's tokens are 0 and all its pages are the dummy page, a page of the pool that the scheduler never hands out;
    what padding rows write lands there. Its position stays 0 and its temperature is 0.

    Rules: `tokens[slot, p]` is the token at position p, prompt or generated. The host writes prompts; steps that sample write
    position p + 1 themselves, so the host never sends a sampled token back. Entries behind the known tokens are undefined.
    """

    tokens: torch.Tensor  # [n_slots + 1, max_length + 1] int32; one more than the length: the last step's token has a place
    pages: torch.Tensor  # [n_slots + 1, max_pages] int32: page ids in order; entries behind the held ones are valid ids
    temperature: torch.Tensor  # [n_slots + 1] float32; 0 is greedy
    top_p: torch.Tensor  # [n_slots + 1] float32; 1 is off
    top_k: torch.Tensor  # [n_slots + 1] int32; 0 is off
    seed: torch.Tensor  # [n_slots + 1] int64
    dummy_page: int

    @property
    def n_slots(self) -> int:
        """Slots without the dummy; also the dummy's index."""
        return int(self.tokens.shape[0]) - 1

    @property
    def max_length(self) -> int:
        """Tokens of one sequence."""
        return int(self.tokens.shape[1]) - 1

    @property
    def device(self) -> torch.device:
        """Of all tables."""
        return self.tokens.device


def allocate_device_state(n_slots: int, max_length: int, dummy_page: int, device: torch.device | str) -> DeviceState:
    """Tables for n_slots sequences of at most max_length tokens; every page entry starts as `dummy_page`.

    Raises: ValueError naming the number that is too small.
    """
    for name, value, least in (("n_slots", n_slots, 1), ("max_length", max_length, 1), ("dummy_page", dummy_page, 0)):
        if value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    rows = n_slots + 1
    max_pages = -(-max_length // PAGE_TOKENS)
    return DeviceState(
        tokens=torch.zeros((rows, max_length + 1), dtype=torch.int32, device=device),
        pages=torch.full((rows, max_pages), dummy_page, dtype=torch.int32, device=device),
        temperature=torch.zeros(rows, dtype=torch.float32, device=device),
        top_p=torch.ones(rows, dtype=torch.float32, device=device),
        top_k=torch.zeros(rows, dtype=torch.int32, device=device),
        seed=torch.zeros(rows, dtype=torch.int64, device=device),
        dummy_page=dummy_page,
    )
