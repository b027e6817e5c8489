"""How threads divide a product: units of one block of a weight and some rows, and passes over the block in each unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_workers.cpu.kernels.vector_code import I64, Value, VectorCode

WritePass = Callable[[Value, Value, int], None]


@dataclass(frozen=True)
class Division:
    """Integers of the kernel that is being written. A unit is one block of `share` rows, so there are
    blocks * ceil(n_rows / share) units. A pass computes `pass_rows` rows of a unit; the last one may have fewer."""

    n_units: Value
    n_rows: Value
    pass_rows: Value
    share: Value


def write_passes(code: VectorCode, division: Division, most_rows: int, write: WritePass) -> None:
    """Write the loops over all units and their passes. `write(block, row, n)` writes the code of one pass: `n` rows from `row`
    on times the block; it is called once for each number of rows up to `most_rows`."""
    b = code.b
    n_shares = b.sdiv(b.sub(code.add(division.n_rows, division.share), I64(1)), division.share)
    with code.each_unit(division.n_units) as unit:
        block, first = b.sdiv(unit, n_shares), code.mul(b.srem(unit, n_shares), division.share)
        end = code.least(code.add(first, division.share), division.n_rows)
        with code.loop(first, end, division.pass_rows) as row:
            done = b.append_basic_block()
            sizes = b.switch(code.least(division.pass_rows, b.sub(end, row)), done)
            for n in range(1, most_rows + 1):
                case = b.append_basic_block()
                sizes.add_case(I64(n), case)
                b.position_at_end(case)
                write(block, row, n)
                b.branch(done)
            b.position_at_end(done)
