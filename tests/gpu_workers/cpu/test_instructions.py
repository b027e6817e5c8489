"""What the supervisor finds out about the processor without LLVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_workers.cpu.instructions import has_exact_products, has_int8_dot, may_execute
from gpu_workers.cpu.kernels.machine import this_machine


def test_it_says_what_a_rank_finds_out_with_llvm() -> None:
    machine = this_machine()
    assert has_int8_dot() == (machine is not None and machine.has_int8_dot)
    assert has_exact_products() == (machine is not None and machine.is_x86)


@pytest.mark.parametrize(
    ("flags", "has_dot", "has_products"),
    [
        ("fpu avx2 fma avx512f avx512bw avx512_vnni", True, True),
        ("fpu avx2 fma avx512f avx512bw", False, True),
        ("fpu avx2 fma avx512f avx512bw avx_vnni", False, True),  # kernels of 512 bits are compiled there, which need their own
        ("fpu avx2 fma f16c avx_vnni", True, True),
        ("fpu avx2 fma f16c", False, True),
        ("fpu avx2 fma", False, False),
        ("fpu avx fma f16c", False, False),
    ],
)
def test_each_width_has_its_own_instructions(tmp_path: Path, flags: str, has_dot: bool, has_products: bool) -> None:
    description = tmp_path / "cpuinfo"
    description.write_text(f"processor\t: 0\nflags\t\t: {flags}\nprocessor\t: 1\nflags\t\t: {flags}\n")
    assert has_int8_dot(description) == (has_dot and may_execute())
    assert has_exact_products(description) == (has_products and may_execute())


def test_other_processors_have_none(tmp_path: Path) -> None:
    description = tmp_path / "cpuinfo"
    description.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n")
    for has in (has_int8_dot, has_exact_products):
        assert not has(description)
        assert not has(tmp_path / "none")
