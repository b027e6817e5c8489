"""The deterministic kernels: right, and with the same bits for a row in any company and any cut; plain functions as in
kernel_checks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch.nn.functional import silu

from gpu_workers.batch.sampling_table import SamplingTable
from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.cuda.deterministic import DeterministicCudaOps, DeterministicTritonAttention, KernelSampler
from gpu_workers.cuda.kernels.attention.paged_fixed import MOST_SEGMENTS, SEGMENT_KEYS
from gpu_workers.cuda.kernels.fixed_product import fixed_product
from gpu_workers.cuda.kernels.fixed_shapes import ProductShape, product_shape
from gpu_workers.layers.page_format import FP8, INT4
from gpu_workers.sampling.sampler import sample_tokens
from messages.generation.terms import RankTerms
from messages.steps import NewSequence
from tests.support.workers.deterministic_runs import SAMPLINGS
from tests.support.workers.kernels.attention_checks import MIXED_ROWS, make_step, plain_attention, random_qkv
from tests.support.workers.kernels.kernel_checks import (
    HEAD_SHAPES,
    Check,
    assert_near,
    poisoned_memory,
    random_state,
    random_tensor,
)
from tests.support.workers.kernels.page_checks import computed_in

_ROW_COUNTS = {"cuda": (1, 2, 16, 63, 64, 65, 128, 129, 256, 300, 2000), "cpu": (1, 3, 64, 65)}
_WEIGHTS = {"cuda": ((4096, 4096), (6144, 4096), (960, 576), (576, 1536), (4096, 14_336), (1000, 600)), "cpu": ((96, 200),)}
_GATED_WEIGHTS = {"cuda": ((3072, 576), (28_672, 4096)), "cpu": ((72, 200),)}
_ALL_SEGMENTS = SEGMENT_KEYS * MOST_SEGMENTS  # keys from which segments are wider
_WIDER = {"cuda": ((((_ALL_SEGMENTS - 20, 20), (_ALL_SEGMENTS - 20, 50), (_ALL_SEGMENTS, 7)), 0),), "cpu": ()}
_LONG_ROWS = ((SEGMENT_KEYS - 3, 1), (2 * SEGMENT_KEYS + 70, 1), (5, 1))


def check_products(device: torch.device, dtype: torch.dtype) -> None:
    """Right at every number of rows, and each row as it is alone."""
    for n_out, width in _WEIGHTS[device.type]:
        weight = random_tensor(device, dtype, n_out, width) / (4 * width**0.5)
        bias = random_tensor(device, dtype, n_out)
        x = random_tensor(device, dtype, max(_ROW_COUNTS[device.type]), width)
        first = fixed_product(x[:1], weight, bias)
        for n_rows in _ROW_COUNTS[device.type]:
            with poisoned_memory():
                got = fixed_product(x[-n_rows:], weight, bias)
            assert_near(got, x[-n_rows:].double() @ weight.double().T + bias.double(), dtype)
            if device.type == "cuda":  # the interpreter's products depend on the size of a tile
                some = torch.randperm(n_rows)[: min(n_rows, 5)].tolist()
                alone = torch.cat([fixed_product(x[len(x) - n_rows + i : len(x) - n_rows + i + 1], weight, bias) for i in some])
                assert got[some].equal(alone), f"{n_rows} rows of {n_out} x {width}"
        again = torch.cat((x[1:2], x[:1]))
        assert fixed_product(again, weight, bias)[1:].equal(first)


def check_split_products(device: torch.device, dtype: torch.dtype) -> None:
    """Segments in programs of their own give the bits of segments in one program."""
    if dtype == torch.float32:
        return  # has one segment
    n_out, width = (4096, 4096) if device.type == "cuda" else (40, 2100)
    weight, x = random_tensor(device, dtype, n_out, width) / width**0.5, random_tensor(device, dtype, 70, width)
    shape = ProductShape(64, 64, 64, 4, 4, segments=2)
    whole = fixed_product(x, weight, None, shape)
    assert_near(whole, x.double() @ weight.double().T, dtype)
    for _ in range(2):  # the counters of arrivals are left as they were found
        assert fixed_product(x, weight, None, replace(shape, is_split=True)).equal(whole)
    assert product_shape(1, n_out, width, dtype).is_split


def check_gated_products(device: torch.device, dtype: torch.dtype) -> None:
    """The gate in the product is right, has the same bits in every cut, and each row is as it is alone."""
    for n_out, width in _GATED_WEIGHTS[device.type]:
        weight, x = random_tensor(device, dtype, n_out, width) / width**0.5, random_tensor(device, dtype, 300, width)
        for n_rows in (1, 65, 300):
            with poisoned_memory():
                got = fixed_product(x[:n_rows], weight, None, is_gated=True)
            gate, up = (x[:n_rows] @ weight.T).double().chunk(2, -1)
            assert_near(got, silu(gate) * up, dtype)
            if device.type == "cuda":  # the interpreter's products depend on the size of a tile
                assert fixed_product(x[:1], weight, None, is_gated=True).equal(got[:1])
        if dtype != torch.float32:
            shape = ProductShape(64, 32, 64, 4, 4, segments=2, prefetch=4)
            whole = fixed_product(x, weight, None, shape, is_gated=True)
            assert fixed_product(x, weight, None, replace(shape, is_split=True), is_gated=True).equal(whole)


def check_attention(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """Mixed steps are right, and a token has the same bits as a chunk's last, alone, and shared by several programs."""
    shapes = HEAD_SHAPES.values() if device.type == "cuda" else [HEAD_SHAPES["smollm2"]]
    for n_heads, n_kv_heads, head_dim in shapes:
        attention = DeterministicTritonAttention(n_heads, n_kv_heads, head_dim, dtype)
        for rows, n_decode in ((MIXED_ROWS, 2), (_LONG_ROWS, 3), (((SEGMENT_KEYS - 20, 50),), 0), *_WIDER[device.type]):
            step, n_pages = make_step(rows, n_decode, device)
            q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, (n_heads, n_kv_heads, head_dim), device, dtype, page_dtype)
            with poisoned_memory():
                got = attention.prepare(step).attend(q, k_pages, v_pages, head_dim**-0.5)
            assert_near(got, plain_attention(q, k_pages, v_pages, step, head_dim**-0.5), computed_in(dtype, page_dtype))
            tokens = [int(offset + count - 1) for offset, count in zip(step.row_offsets, step.row_counts, strict=True)]
            single = _last_tokens(step)
            prepared = attention.prepare(single)
            with poisoned_memory():
                shared = prepared.attend(q[tokens], k_pages, v_pages, head_dim**-0.5)
                alone = replace(prepared, n_splits=1).attend(q[tokens], k_pages, v_pages, head_dim**-0.5)
            assert alone.equal(shared), f"{prepared.n_splits} programs"
            if device.type == "cuda":  # the interpreter's products depend on a row's place in its tile
                assert alone.equal(got[tokens])


def check_padding(device: torch.device, dtype: torch.dtype) -> None:
    """Rows of length 0 give zeros."""
    step, n_pages = make_step(_LONG_ROWS, 3, device)
    q, k_pages, v_pages = random_qkv(3, n_pages, HEAD_SHAPES["smollm2"], device, dtype)
    step.lengths[1] = 0
    with poisoned_memory():
        got = DeterministicTritonAttention(9, 3, 64, dtype).prepare(step).attend(q, k_pages, v_pages, 0.125)
    assert not got[1].any()
    assert got.isfinite().all()


def check_norms(device: torch.device, dtype: torch.dtype) -> None:
    """A row's norm has the same bits alone and beside others, also of heads."""
    ops = DeterministicCudaOps()
    for n_heads, width in ((1, 4096), (1, 576), (8, 128), (3, 64)):
        x, weight = random_tensor(device, dtype, 70, n_heads, width), random_tensor(device, dtype, width)
        whole = ops.rms_norm(x, weight, 1e-5)
        assert torch.cat([ops.rms_norm(x[i : i + 1], weight, 1e-5) for i in range(0, 70, 13)]).equal(whole[::13])


def check_sampler(device: torch.device, dtype: torch.dtype) -> None:
    """The kernels of captured steps choose what torch chooses, also where logits are edited."""
    state, table = random_state(device, n_slots=5, max_length=100, n_pages=20), SamplingTable(5)
    for slot, sampling in enumerate((*SAMPLINGS, SAMPLINGS[1])):
        banned = [*range(0, 900, 2)] if slot == len(SAMPLINGS) else []
        terms = RankTerms(min_tokens=50, stop_tokens=banned)
        table.put(NewSequence(slot=slot, n_tokens=9, n_prompt=9, sampling=sampling, terms=terms))
    slots = np.repeat(np.arange(5), 6)
    state.sampling[:5] = torch.from_numpy(table.values_of(np.arange(5)).view(np.int64)).view(5, -1).to(device)
    rows = table.gather(slots, 9 + np.tile(np.arange(6), 5))
    logits = (random_tensor(device, torch.float32, len(slots), 1000) * 3).to(dtype)
    got = KernelSampler(state).sample(logits, rows)
    assert got.tolist() == sample_tokens(logits.float(), rows, state.tokens).tolist()


def _last_tokens(step: StepTensors) -> StepTensors:
    """The last token of each row as a decode row."""
    ones = np.ones(step.n_rows, np.int32)
    starts = step.row_starts + step.row_counts - 1
    offsets = np.arange(step.n_rows, dtype=np.int32)
    return replace(step, n_decode=step.n_rows, row_starts=starts, row_counts=ones, row_offsets=offsets)


DETERMINISTIC_CHECKS: dict[str, Check] = {
    "products": check_products,
    "split_products": check_split_products,
    "gated_products": check_gated_products,
    "attention": check_attention,
    "attention over 8-bit floats": partial(check_attention, page_dtype=FP8),
    "attention over 8-bit integers": partial(check_attention, page_dtype=torch.int8),
    "attention over small integers": partial(check_attention, page_dtype=INT4),
    "padding": check_padding,
    "norms": check_norms,
    "sampler": check_sampler,
}
