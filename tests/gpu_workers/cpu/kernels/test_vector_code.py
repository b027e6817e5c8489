"""How threads draw the units of a kernel, alone and in a program."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.cpu.kernels.calls import BufferPool, Recorder
from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.cpu.kernels.machine_code import Kernel, compile_kernel
from gpu_workers.cpu.kernels.program import write_program
from gpu_workers.cpu.kernels.vector_code import FIRST_WORD, I64, VectorCode
from gpu_workers.cpu.ops import cut_product

_MACHINE = this_machine()
_N_UNITS, _COUNTS = FIRST_WORD, FIRST_WORD + 1


def _write_count(code: VectorCode) -> None:
    """Adds 1 to the number of each unit."""
    with code.each_unit(code.argument(_N_UNITS)) as unit:
        code.b.atomic_rmw("add", code.at(code.pointer(_COUNTS), unit, I64), I64(1), "monotonic")


@pytest.fixture(scope="module")
def kernels() -> tuple[Kernel, Kernel]:
    if _MACHINE is None:
        pytest.skip("this processor has no kernels")
    return compile_kernel(_write_count, _MACHINE), compile_kernel(write_program, _MACHINE)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 50)), min_size=1, max_size=6), st.integers(1, 4))
def test_each_unit_is_computed_once(kernels: tuple[Kernel, Kernel], calls: list[tuple[int, int]], n_threads: int) -> None:
    count, runner = kernels
    counts = [np.zeros(n_units, np.int64) for n_units, _ in calls]
    own_threads = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        recorder = Recorder(BufferPool(1))
        for (n_units, run_units), found in zip(calls, counts, strict=True):
            recorder.run(count, (n_units, found.ctypes.data), run_units)
            count((n_units, found.ctypes.data), run_units)
        program = recorder.finish(runner)
        program.run()
        program.run()
    finally:
        torch.set_num_threads(own_threads)
    assert all((found == 3).all() for found in counts)


@given(st.integers(1, 64), st.integers(1, 800), st.integers(32, 20_000), st.integers(1, 64))
def test_threads_have_even_shares_of_a_product(n_rows: int, blocks: int, n_in: int, n_threads: int) -> None:
    own_threads = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        cut = cut_product(n_rows, 6, blocks, n_in)
    finally:
        torch.set_num_threads(own_threads)
    n_runs = -(-cut.n_units // cut.run_units)
    most_runs, even = -(-n_runs // n_threads), -(-cut.n_units // n_threads)
    assert even <= most_runs * cut.run_units < even + cut.run_units + most_runs
