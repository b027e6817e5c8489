"""What is known of a checkpoint whose linear layers have integers or 8-bit floats, before a tensor of it is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

_INTEGER_GROUP = 32  # inputs that have one scale in our layouts of integers; see `cpu.kernels.exact_weights`


class Layout(Enum):
    """Which tensors hold the weight of a layer X."""

    SCALED = "weight and weight_scale or weight_scale_inv"
    PACKED = "weight_packed, weight_scale and weight_zero_point"
    AWQ = "qweight, qzeros and scales, outputs packed"
    GPTQ = "qweight, qzeros and scales, inputs packed"


class Numbers(Enum):
    """What a weight is made of. Each number is multiplied with a scale."""

    FP8 = "fp8"  # e4m3
    INT8 = "int8"
    INT4 = "int4"

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return 4 if self is Numbers.INT4 else 8


@dataclass(frozen=True)
class QuantizedWeights:
    """The form of the weights. `ignored`: names or patterns of layers that stay floats; `targets`: of those that do not, empty
    for all; `passed_over`: keys that ask for something that is done in another way here."""

    method: str  # as config.json names it
    layout: Layout
    numbers: Numbers
    block: tuple[int, int] | None = None  # outputs and inputs that have one scale; None: see `group`
    group: int = 0  # inputs of an output that have one scale; 0: all of them
    has_zeros: bool = False  # zeros are integers that the file has, not the middle of the range
    in_order: bool = True  # neighbouring inputs have one scale; False: the file says which ones
    zeros_are_less: bool = False  # zeros are stored less 1
    rounds_inputs: bool = False  # inputs were meant to be rounded like weights
    ignored: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The form for people: "int4 in groups of 128 (awq)"."""
        groups = f" in groups of {self.group}" if self.group else ""
        blocks = " in blocks of {} x {}".format(*self.block) if self.block else ""
        return f"{self.numbers.value}{groups}{blocks} ({self.method})"

    @property
    def has_rows_of_fp8(self) -> bool:
        """True if a weight is 8-bit floats with one scale for each output at most: GPUs multiply them as they are."""
        return self.numbers is Numbers.FP8 and self.block is None

    @property
    def has_whole_groups(self) -> bool:
        """True if a weight is integers whose groups our layouts of integers can have."""
        return self.numbers is not Numbers.FP8 and self.in_order and self.group % _INTEGER_GROUP == 0

    def leaves_floats(self, layer: str) -> bool:
        """True if the layer of this name, such as "model.layers.0.mlp.up_proj", is not quantised."""
        if any(_matches(pattern, layer) for pattern in self.ignored):
            return True
        return bool(self.targets) and not any(_matches(pattern, layer) for pattern in self.targets)


def _matches(pattern: str, layer: str) -> bool:
    """A pattern is a regular expression after "re:", or some whole parts of the name."""
    if pattern.startswith("re:"):
        return re.match(pattern.removeprefix("re:"), layer) is not None
    return f".{pattern}." in f".{layer}."
