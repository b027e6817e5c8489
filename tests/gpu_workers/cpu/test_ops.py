"""The compiled operations of CPUs against torch's, in both dtypes; and weights whose layout they do not know."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.cpu.kernels import matrix
from gpu_workers.cpu.kernels.calls import DirectCalls
from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.layers.cpu_linear import can_pack, pack_weight
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.rotary import cos_sin_table
from gpu_workers.layers.torch_ops import KvTarget, TorchOps
from gpu_workers.runner.backend import cpu_ops
from messages.steps import PAGE_TOKENS

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)

from gpu_workers.cpu.ops import CpuOps, PackedWeight, count_shares, known_block
from tests.support.depth import dear_examples

pytestmark = pytest.mark.slow

PLAIN = TorchOps()
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])


@cache
def ops_of(dtype: torch.dtype, has_bf16_dot: bool = True) -> CpuOps:
    machine = this_machine()
    assert machine is not None
    return CpuOps(dtype, dataclasses.replace(machine, has_bf16_dot=machine.has_bf16_dot and has_bf16_dot))


def near(dtype: torch.dtype) -> float:
    return 1e-5 if dtype == torch.float32 else 2e-2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_packed_alike_on_many_cores(dtype: torch.dtype) -> None:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(16)
    try:
        ops = ops_of(dtype)
        if not isinstance(ops.pack_linear(torch.ones(3072, 576, dtype=dtype)), PackedWeight):
            pytest.skip("this processor has no packed weights of this kind")
        assert isinstance(ops.pack_linear(torch.ones(576, 576, dtype=dtype)), PackedWeight)
        assert torch.get_num_threads() == 16
    finally:
        torch.set_num_threads(n_threads)


@dear_examples(60)
@given(st.integers(0, 70), st.integers(1, 3), st.booleans(), DTYPES, st.booleans())
def test_linear_at_any_number_of_rows(rows: int, blocks: int, has_bias: bool, dtype: torch.dtype, has_dot: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    sizes = ((rows, 50), (64 * blocks, 50), (64 * blocks,))
    x, weight, bias = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
    ops = ops_of(dtype, has_dot)
    out = ops.linear(x, ops.pack_linear(weight), bias if has_bias else None)
    expected = x.double() @ weight.double().T + (bias.double() if has_bias else 0.0)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, atol=near(dtype) * 10, rtol=near(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_computed_alike_in_any_company(dtype: torch.dtype) -> None:
    ops, generator = ops_of(dtype), torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, generator=generator).to(dtype) for size in ((64, 96), (128, 96)))
    packed = ops.pack_linear(weight)
    if not isinstance(packed, PackedWeight) or ops.most_rows < 64:
        pytest.skip("the kernel does not compute so many rows here")
    whole = ops.linear(x, packed, None)
    assert all(ops.linear(x[row : row + 1], packed, None).equal(whole[row : row + 1]) for row in range(64))


class _Noted(DirectCalls):
    """Calls that note what is left to torch."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[str] = []

    def leave_to_torch(self, what: str) -> None:
        self.left.append(what)


@pytest.mark.parametrize("has_tiles", [False, True])
def test_prompts_in_bfloat16_are_left_to_torch_where_it_has_tiles(has_tiles: bool) -> None:
    machine = this_machine()
    if machine is None or not machine.has_bf16_dot:
        pytest.skip("the kernel leaves such prompts to torch in any case")
    ops, noted = CpuOps(torch.bfloat16, dataclasses.replace(machine, has_bf16_tiles=has_tiles)), _Noted()
    packed = ops.pack_linear(torch.ones(128, 96, dtype=torch.bfloat16))
    for rows in (4, 5):
        ops.through(noted).linear(torch.ones(rows, 96, dtype=torch.bfloat16), packed, None)
    assert noted.left == (["a product of many rows"] if has_tiles else [])


@pytest.mark.parametrize("shape", [(64, 33), (40, 48), (65, 16)])
def test_a_weight_in_another_layout_goes_to_torch(shape: tuple[int, int]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0)).bfloat16()
    ops = ops_of(torch.bfloat16)
    packed = ops.pack_linear(weight)
    assert not isinstance(packed, PackedWeight)
    x = torch.randn(2, shape[1], generator=torch.Generator().manual_seed(1)).bfloat16()
    torch.testing.assert_close(ops.linear(x, packed, None), x @ weight.T, atol=0.1, rtol=2e-2)


def test_a_layout_is_recognised_by_its_bytes() -> None:
    if not can_pack(torch.float32):
        pytest.skip("oneDNN packs nothing here")
    weight = torch.randn(128, 32, generator=torch.Generator().manual_seed(0))
    packed = pack_weight(weight)
    if torch.backends.cpu.get_cpu_capability() == "AVX512":  # with narrower vectors oneDNN packs otherwise, and torch computes
        assert known_block(weight, packed) == matrix.BLOCK
        ops = ops_of(torch.float32)
        ops.pack_linear(weight.to("meta"))  # as weights are counted; nothing is learnt from it
        assert isinstance(ops.pack_linear(weight), PackedWeight)
    assert not known_block(weight + 1, packed)
    assert not known_block(weight, weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3, 4, 7, 64])
def test_blocks_of_both_sizes_give_the_same_product(rows: int, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip(
            "oneDNN, which has the products of many rows, knows such blocks with AVX-512 alone; no weight gets them here"
        )
    ops, generator = ops_of(dtype), torch.Generator().manual_seed(rows)
    x, weight = (torch.randn(size, generator=generator).to(dtype) for size in ((rows, 96), (192, 96)))
    found = []
    for block in matrix.BLOCKS:
        packed = matrix.pack(weight, block)
        found.append(ops.linear(x, PackedWeight(packed, packed.data_ptr(), 96, 192, block), None))
    assert found[0].equal(found[1])
    torch.testing.assert_close(found[0].double(), x.double() @ weight.double().T, atol=near(dtype) * 10, rtol=near(dtype))


def test_kernels_never_change_the_team_of_threads() -> None:
    """The runtime ends threads for a smaller team and starts them again for the next: 150 a step, once."""
    script = """
import os, torch
torch.set_num_threads(4)
from gpu_workers.runner.backend import cpu_ops
ops = cpu_ops(torch.float32)
few, many = torch.randn(3, 8192), torch.randn(64, 8192)
norm = torch.ones(8192)
seen = set()
for _ in range(20):
    for x in (many, few):
        ops.rms_norm(x, norm, 1e-5)
        seen.update(os.listdir("/proc/self/task"))
print(len(seen) - len(os.listdir("/proc/self/task")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "0\n"


def test_without_leave_to_execute_torch_computes() -> None:
    script = """
import ctypes, torch
assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0  # PR_SET_MDWE: written memory may not be made executable
from gpu_workers.runner.backend import cpu_ops
ops = cpu_ops(torch.float32)
print(type(ops).__name__, ops.rms_norm(torch.ones(2, 64), torch.ones(64), 1e-5).shape[0])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    if "AssertionError" in done.stderr:
        pytest.skip("this kernel has no PR_SET_MDWE")
    assert done.stdout.splitlines()[-1] == "TorchOps 2"


def test_a_kernel_that_llvm_refuses_leaves_the_layers_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("LLVM ERROR: cannot select")

    monkeypatch.setattr("gpu_workers.cpu.ops.compile_kernel", refuse)
    assert type(cpu_ops(torch.float32)) is TorchOps


def test_other_dtypes_are_torch() -> None:
    assert type(cpu_ops(torch.float16)) is TorchOps
    assert isinstance(cpu_ops(torch.float32), CpuOps)


def random(dtype: torch.dtype, *size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0, 64), (1, 64), (5, 576), (90, 256), (7, 3, 32), (5, 20)])
def test_norms(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, residual, weight = random(dtype, *shape), random(dtype, *shape) * 2, random(dtype, shape[-1])
    want = PLAIN.rms_norm(x, weight, 1e-2)
    torch.testing.assert_close(ops_of(dtype).rms_norm(x, weight, 1e-2), want, atol=near(dtype), rtol=near(dtype))
    normed, total = ops_of(dtype).add_rms_norm(x.clone(), residual.clone(), weight, 1e-2)
    assert total.equal(x + residual)
    want = PLAIN.rms_norm(x + residual, weight, 1e-2)
    torch.testing.assert_close(normed, want, atol=near(dtype), rtol=near(dtype))


def test_norm_of_heads_within_a_fused_projection() -> None:
    qkv, weight = random(torch.float32, 6, 8, 32), random(torch.float32, 32)
    q, k, _ = qkv.split((4, 2, 2), 1)
    for heads in (q, k):
        torch.testing.assert_close(ops_of(torch.float32).rms_norm(heads, weight, 1e-5), PLAIN.rms_norm(heads, weight, 1e-5))


@dear_examples(40)
@given(st.integers(1, 40), st.sampled_from([(9, 3, 64), (2, 2, 32), (4, 1, 128), (3, 1, 16)]), st.booleans(), DTYPES)
def test_rope_and_store(n_tokens: int, sizes: tuple[int, int, int], is_fused: bool, dtype: torch.dtype) -> None:
    n_heads, n_kv_heads, head_dim = sizes
    qkv = random(dtype, n_tokens, n_heads + 2 * n_kv_heads, head_dim)
    generator = torch.Generator().manual_seed(n_tokens)
    positions = torch.randint(0, 500, (n_tokens,), generator=generator)
    slots = torch.randperm(4 * PAGE_TOKENS, generator=generator)[:n_tokens]
    table = cos_sin_table(10_000.0 ** -(torch.arange(head_dim // 2) / head_dim * 2), 500)
    results = []
    for ops in (PLAIN, ops_of(dtype)):
        q, k, v = qkv.clone().split((n_heads, n_kv_heads, n_kv_heads), 1)
        if not is_fused:
            q, k = q.clone(), k.clone()
        kv = KvPages.allocate(KvShape(3, n_kv_heads, head_dim, dtype), 4, "cpu")
        rotated = ops.rope_and_store(q, k, v, KvTarget(positions, table, kv.keys[1], kv.values[1], slots))
        assert rotated.is_contiguous()
        results.append((rotated, kv.storage[:, :, 0], kv.storage[:, :, 1]))
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want, atol=near(dtype), rtol=near(dtype))
    assert results[0][2].equal(results[1][2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(0, 64), (1, 64), (40, 3072), (3, 40)])
def test_gate(shape: tuple[int, int], dtype: torch.dtype) -> None:
    gate_up = random(dtype, *shape) * 4
    got = ops_of(dtype).silu_mul(gate_up.clone())
    gate, up = gate_up.double().chunk(2, -1)
    torch.testing.assert_close(got.double(), gate * torch.sigmoid(gate) * up, atol=near(dtype), rtol=near(dtype))


def test_gate_far_from_zero() -> None:
    gate = torch.tensor([-1e4, -200.0, -90.0, 0.0, 90.0, 1e30] + [0.0] * 10)
    got = ops_of(torch.float32).silu_mul(torch.cat((gate, torch.ones(16)))[None])
    torch.testing.assert_close(got[0], torch.where(gate > 0, gate, 0.0), atol=1e-30, rtol=1e-6)


def test_nothing_hides_what_is_not_a_number() -> None:
    x = random(torch.float32, 2, 64)
    x[0, 3] = float("nan")
    ops, weight = ops_of(torch.float32), torch.ones(64)
    assert ops.rms_norm(x, weight, 1e-5).isnan().all(-1).tolist() == [True, False]
    assert ops.add_rms_norm(x.clone(), x.clone(), weight, 1e-5)[0].isnan().all(-1).tolist() == [True, False]
    assert ops.silu_mul(x).isnan().any(-1).tolist() == [True, False]


@dear_examples(40)
@given(st.integers(1, 70), st.integers(1, 40), DTYPES, st.integers(0, 9))
def test_argmax_is_the_lowest_of_the_greatest(n_rows: int, vectors: int, dtype: torch.dtype, seed: int) -> None:
    logits = torch.randint(-9, 9, (n_rows, 16 * vectors), generator=torch.Generator().manual_seed(seed)).to(dtype)
    logits[0] = float("-inf")
    assert ops_of(dtype).argmax(logits).equal(torch.from_numpy(logits.float().numpy().argmax(-1)))


def test_an_embedding_is_a_copy_of_rows() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        table, ids = random(dtype, 50, 64), torch.tensor([3, 49, 0, 3])
        table[3, 5] = float("nan")
        torch.testing.assert_close(ops_of(dtype).embed(ids, table), table[ids], atol=0, rtol=0, equal_nan=True)
        assert ops_of(dtype).embed(ids, random(dtype, 50, 20)).equal(random(dtype, 50, 20)[ids])


@given(st.integers(1, 800), st.integers(1, 11), st.integers(1, 64))
def test_shares_are_whole_passes_and_end_together(blocks: int, n_passes: int, n_threads: int) -> None:
    shares = count_shares(blocks, n_passes, n_threads)
    assert 1 <= shares <= n_passes
    if n_passes < 4 or blocks % n_threads == 0:
        assert shares == 1
    elif shares < n_passes:
        assert blocks * shares % n_threads == 0 or blocks * shares >= 8 * n_threads
    assert count_shares(9, 11, 2) == 2
