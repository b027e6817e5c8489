"""A linear weight as a quantised checkpoint stores it: small numbers and their scales, whatever the format of the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class StoredWeight:
    """A weight [out, in], all tensors on one device: (numbers - zeros) * scales.

    On the device "meta", where weights are counted, shapes and dtypes are right and there is no content."""

    numbers: torch.Tensor  # [out, in]: e4m3, int8, or uint8 with `zeros`
    scales: torch.Tensor  # [out, n_groups] float32
    bits: int  # of a number
    zeros: torch.Tensor | None = None  # [out, n_groups] int16; None: 0
    groups: torch.Tensor | None = None  # [in] int64: the group of each input; None: all inputs are in one group

    @property
    def is_fp8(self) -> bool:
        """True for 8-bit floats, False for integers."""
        return self.numbers.dtype == torch.float8_e4m3fn

    def floats(self) -> torch.Tensor:
        """The numbers that it stands for: float32 [out, in], each rounded once."""
        numbers = self.numbers.float()
        if self.zeros is not None:
            numbers -= self._of_inputs(self.zeros)
        return numbers.mul_(self._of_inputs(self.scales))

    def integers(self) -> torch.Tensor | None:
        """numbers - zeros as int16 [out, in]; None if they are floats, or one needs more than 8 bits with a sign."""
        if self.is_fp8:
            return None
        whole = self.numbers.to(torch.int16)
        if self.zeros is not None:
            whole -= self._of_inputs(self.zeros)
        return None if whole.amin() < -128 or whole.amax() > 127 else whole

    def by_groups_of(self, n: int) -> StoredWeight | None:
        """The same weight with one scale for each n neighbouring inputs, the first n and so on; None if some have several."""
        n_in = self.numbers.shape[1]
        if n_in % n:
            return None
        firsts = torch.arange(0, n_in, n, device=self.numbers.device) // n
        groups = torch.zeros_like(firsts) if self.groups is None else self.groups.view(-1, n)[:, 0]
        if self.groups is not None and (self.groups.view(-1, n) != groups[:, None]).any():
            return None
        zeros = None if self.zeros is None else self.zeros[:, groups]
        return replace(self, scales=self.scales[:, groups], zeros=zeros, groups=firsts.repeat_interleave(n))

    def _of_inputs(self, values: torch.Tensor) -> torch.Tensor:
        """values [out, n_groups] -> those of each input, [out, in] or [out, 1]."""
        return values if self.groups is None else values[:, self.groups]


def join_rows(parts: Sequence[StoredWeight]) -> StoredWeight | None:
    """The weights one below the other; None if they are of different forms."""
    first = parts[0]
    if not all(_have_one_form(first, part) for part in parts[1:]):
        return None
    numbers = [part.numbers.view(torch.uint8) for part in parts]  # torch joins no 8-bit floats everywhere
    zeros = [part.zeros for part in parts if part.zeros is not None]
    return replace(
        first,
        numbers=torch.cat(numbers).view(first.numbers.dtype),
        scales=torch.cat([part.scales for part in parts]),
        zeros=torch.cat(zeros) if zeros else None,
    )


def _have_one_form(one: StoredWeight, other: StoredWeight) -> bool:
    if one.bits != other.bits or one.numbers.dtype != other.numbers.dtype or (one.zeros is None) != (other.zeros is None):
        return False
    if one.groups is None or other.groups is None:
        return one.groups is other.groups
    return one.numbers.is_meta or one.groups.equal(other.groups)
