"""Compiles kernels in vector code to functions that run on torch's own threads.

Work is spread with the OpenMP runtime that torch itself has loaded, so that there is one team of threads and not two that
wait for each other's cores. Where `machine.this_machine` is None nothing here is used, and plain torch computes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from llvmlite import binding, ir

from gpu_workers.cpu.code_files import CodeFiles
from gpu_workers.cpu.kernels.machine import Machine, openmp
from gpu_workers.cpu.kernels.vector_code import FIRST_WORD, RUN_UNITS, VectorCode
from gpu_workers.model_store.model_folder import cache_folder

_OPTIMISATION = 3


class Kernel:
    """A compiled kernel. The code lives as long as this object."""

    def __init__(self, target: Any, code: bytes) -> None:
        """target: LLVM's description of the processor. code: an object file with a function "kernel"."""
        self._engine, self._code = binding.create_mcjit_compiler(binding.parse_assembly(""), target), code
        self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self.address = self._engine.get_function_address("kernel")
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address)

    def __call__(self, words: Sequence[int], run_units: int) -> None:
        """Run with these words; the first one is the number of units. All of torch's threads share them, in runs of
        `run_units`; this thread computes them if they are one run."""
        array = (ctypes.c_int64 * (2 * RUN_UNITS + FIRST_WORD + len(words)))()
        start = -(ctypes.addressof(array) // 8) % RUN_UNITS
        array[start + RUN_UNITS : start + FIRST_WORD + len(words)] = [run_units, *words]
        self.run_at(ctypes.addressof(array) + 8 * start, is_spread=run_units < words[0])

    def run_at(self, words_address: int, is_spread: bool) -> None:
        """Run with the words in this place of memory, counters first.

        All threads or one: for a team smaller than the last one the runtime would end threads and restart them later."""
        n_threads = torch.get_num_threads() if is_spread else 1
        if n_threads == 1:
            self._call(words_address)
        else:
            openmp().GOMP_parallel(self.address, words_address, n_threads, 0)


def compile_kernel(write: Callable[[VectorCode], None], machine: Machine, cpu: str = "", features: str = "") -> Kernel:
    """Compiles a kernel written by `write`, for the processor at hand unless cpu and features (LLVM's names) say otherwise. The
    code is kept in a file, from which the next process takes it.

    Raises: RuntimeError when LLVM refuses the code."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = ir.Module("kernel")
    module.triple = binding.get_process_triple()
    vector_code = VectorCode(module, "kernel", machine)
    write(vector_code)
    vector_code.finish()
    if not cpu:
        # LLVM would halve the vectors of processors that once clocked down under wide ones
        cpu, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten() + ",-prefer-256-bit"
    target = binding.Target.from_triple(module.triple).create_target_machine(cpu, features, _OPTIMISATION, jit=True)
    assembly, files = str(module), _code_files()
    source = f"{binding.llvm_version_info} {_OPTIMISATION} {cpu} {features}\n{assembly}"
    code = None if files is None else files.read(source)
    if code is None:
        code = _compile(assembly, target)
        if files is not None:
            files.keep(source, code)
    return Kernel(target, code)


def _code_files() -> CodeFiles | None:
    """None where this user has no cache folder."""
    try:
        return CodeFiles(cache_folder() / "kernels")
    except FileNotFoundError:
        return None


def _compile(assembly: str, target: Any) -> bytes:
    """The object file of this module. Raises: RuntimeError when LLVM refuses it."""
    parsed = binding.parse_assembly(assembly)
    parsed.verify()
    passes = binding.create_pass_builder(target, binding.create_pipeline_tuning_options(_OPTIMISATION))
    passes.getModulePassManager().run(parsed, passes)
    return target.emit_object(parsed)
