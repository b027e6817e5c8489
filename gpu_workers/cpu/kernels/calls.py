"""Kernel calls, made at once or recorded. `CpuOps` and `CpuStep` allocate results and make their calls through `Calls`.

A recorded program is to a CPU what a captured graph is to a GPU: a step is recorded once and run many times, each time as one
call. Inputs that change from run to run must be in memory that the recorded calls point to; results are in the same memory
after each run.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from gpu_workers.cpu.kernels import program
from gpu_workers.cpu.kernels.machine import openmp
from gpu_workers.cpu.kernels.machine_code import Kernel
from gpu_workers.cpu.kernels.vector_code import FIRST_WORD, RUN_UNITS

_CACHE_LINE_WORDS = 8


class NotRecordable(Exception):
    """Part of a step is computed by torch, so it cannot be recorded; the text says which part."""


class Calls(Protocol):
    """Makes kernel calls."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor for a result, uninitialised, on the CPU."""
        ...

    def run(self, kernel: Kernel, words: Sequence[int], run_units: int) -> None:
        """Call the kernel with these argument words (integers, addresses, bits of floats); the first is the number of units.
        All of torch's threads share them, in runs of `run_units`, and one thread computes them if they are one run."""
        ...

    def leave_to_torch(self, what: str) -> None:
        """Call it before torch computes `what`. Raises: NotRecordable when calls are being recorded."""
        ...


class DirectCalls(Calls):
    """Makes each call at once."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A new tensor on the CPU, uninitialised."""
        return torch.empty(shape, dtype=dtype)

    def run(self, kernel: Kernel, words: Sequence[int], run_units: int) -> None:
        """Calls the kernel with these argument words, and returns when it is done."""
        kernel(words, run_units)

    def leave_to_torch(self, what: str) -> None:
        """Nothing to do: torch computes when it is called."""


class Recorder(Calls):
    """Records the calls; `finish` makes a program of them."""

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._calls: list[tuple[Kernel, tuple[int, ...], int]] = []

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor on memory that no other living tensor uses. Once it is freed, later calls may write there."""
        return self._pool.empty(shape, dtype)

    def run(self, kernel: Kernel, words: Sequence[int], run_units: int) -> None:
        """Adds a call of the kernel with these argument words to the program. Nothing is computed."""
        self._calls.append((kernel, tuple(words), run_units))

    def leave_to_torch(self, what: str) -> None:
        """Raises: NotRecordable naming `what`, because a program has kernel calls only."""
        raise NotRecordable(what)

    def finish(self, runner: Kernel) -> Program:
        """All calls so far as one; runner: the kernel of `program.write_program`."""
        return Program(runner, self._calls)


class Program:
    """Recorded calls that run as one. Not thread-safe. The owner keeps alive what the argument words point to."""

    def __init__(self, runner: Kernel, calls: Sequence[tuple[Kernel, tuple[int, ...], int]]) -> None:
        self._runner, self._kernels = runner, {kernel for kernel, _, _ in calls}
        starts, n_words = [], 0
        for _, words, _ in calls:  # counters of different calls on different cache lines
            starts.append(n_words)
            n_words += -(-(FIRST_WORD + len(words)) // _CACHE_LINE_WORDS) * _CACHE_LINE_WORDS
        self._words = _aligned(n_words, torch.int64)
        table = np.zeros((len(calls), program.CALL_WORDS), np.int64)
        for start, (kernel, words, run_units), row in zip(starts, calls, table, strict=True):
            self._words[start + RUN_UNITS : start + FIRST_WORD + len(words)] = run_units, *words
            row[:] = kernel.address, self._words.ctypes.data + 8 * start, run_units >= words[0]
        self._table, self._barrier = table, _aligned(program.BARRIER_WORDS, torch.int64)
        functions = (_address(openmp().omp_get_num_threads), _address(ctypes.CDLL(None).syscall))
        own = (table.ctypes.data, len(calls), self._barrier.ctypes.data, *functions)
        self._own = np.array((0,) * FIRST_WORD + own, np.int64)
        self._own_address = self._own.ctypes.data

    def run(self) -> None:
        """All calls, in order, on all of torch's threads."""
        self._runner.run_at(self._own_address, is_spread=True)


@dataclass
class _Block:
    memory: np.ndarray  # bytes
    user: weakref.ref[np.ndarray] | None = None


class BufferPool:
    """Memory for programs that never run at the same time: a block is used again when the tensor on it has been freed."""

    def __init__(self, most_rows: int) -> None:
        """most_rows: the most rows of any tensor. Every block has room for so many, so that programs of all sizes share it."""
        self._most_rows = most_rows
        self._blocks: list[_Block] = []

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor on a free block, on a new one if there is none. Raises: ValueError for more rows than promised."""
        n_rows, *inner = shape
        if n_rows > self._most_rows:
            raise ValueError(f"rows: expected at most {self._most_rows}, got {n_rows}")
        row_bytes = int(np.prod(inner)) * dtype.itemsize
        block = self._free_block(row_bytes * self._most_rows)
        piece = block.memory[: row_bytes * n_rows]
        block.user = weakref.ref(piece)
        return torch.from_numpy(piece).view(dtype).view(tuple(shape))  # its storage keeps the piece, whatever views there are

    def free_all(self) -> None:
        """Free all blocks before a new recording, which may overwrite the results of other programs."""
        for block in self._blocks:
            block.user = None

    def _free_block(self, n_bytes: int) -> _Block:
        for block in self._blocks:
            if block.memory.nbytes == n_bytes and (block.user is None or block.user() is None):
                return block
        self._blocks.append(_Block(_aligned(n_bytes, torch.uint8)))
        return self._blocks[-1]


def _aligned(size: int, dtype: torch.dtype) -> np.ndarray:
    """[size] zeros that begin on a cache line."""
    return torch.zeros(size, dtype=dtype).numpy()


def _address(function: object) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value  # pyright: ignore[reportArgumentType]
    assert address is not None, "a function has an address"
    return address
