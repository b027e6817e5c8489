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

    def write_unit(block: Value, first: Value, end: Value) -> None:
        write_rows(code, division, (first, end), most_rows, lambda row, n: write(block, row, n))

    write_units(code, division, write_unit)


def write_units(code: VectorCode, division: Division, write: Callable[[Value, Value, Value], None]) -> None:
    """Write the loop over all units. `write(block, first, end)` writes the code of one: the block times the rows from `first`
    up to `end`."""
    b = code.b
    n_shares = b.sdiv(b.sub(code.add(division.n_rows, division.share), I64(1)), division.share)
    with code.each_unit(division.n_units) as unit:
        block, first = b.sdiv(unit, n_shares), code.mul(b.srem(unit, n_shares), division.share)
        write(block, first, code.least(code.add(first, division.share), division.n_rows))


def write_rows(
    code: VectorCode, division: Division, rows: tuple[Value, Value], most_rows: int, write: Callable[[Value, int], None]
) -> None:
    """Write the loop over the passes of a unit with these rows (the first one and the end). `write` as in `write_passes`."""
    b, (first, end) = code.b, rows
    with code.loop(first, end, division.pass_rows) as row:
        done = b.append_basic_block()
        sizes = b.switch(code.least(division.pass_rows, b.sub(end, row)), done)
        for n in range(1, most_rows + 1):
            case = b.append_basic_block()
            sizes.add_case(I64(n), case)
            b.position_at_end(case)
            write(row, n)
            b.branch(done)
        b.position_at_end(done)
