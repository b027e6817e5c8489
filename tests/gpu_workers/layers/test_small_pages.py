"""Pages of small integers: how small they are, how near the numbers stay, and that a token writes its own bytes alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.layers.attention import TorchAttention
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import INT4, format_of
from gpu_workers.layers.small_integers import halves_of, quantise, restored, vectors_of
from gpu_workers.layers.small_pages import KEY_LEVELS, VALUE_LEVELS, parts_of
from messages.errors import ConfigError
from messages.steps import PAGE_TOKENS
from tests.support.depth import examples
from tests.support.workers.dense_attention import dense_attention, paged_rows, rows_of_a_step

WIDTH = 32


def stored(k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor, n_pages: int = 4) -> KvPages:
    """Pages of three layers, of which the second holds these vectors [T, heads, n] at `slots`."""
    kv = KvPages.allocate(KvShape(3, k.shape[1], k.shape[2], INT4), n_pages, "cpu")
    format_of(INT4).store(kv.keys[1], kv.values[1], slots, k, v)
    return kv


def all_parts(pages: torch.Tensor, *, is_key: bool) -> tuple[torch.Tensor, ...]:
    """Numbers, planes, and scales with their tokens in front of their heads, as all parts have them."""
    parts = parts_of(pages, is_key=is_key)
    return parts.numbers, parts.planes, parts.scales.permute(0, 3, 1, 2)


@pytest.mark.parametrize(("head_dim", "n_bytes"), [(64, 72), (128, 140)])
def test_how_small_a_page_is(head_dim: int, n_bytes: int) -> None:
    """71.9 and 72.7 % less than with bfloat16."""
    small = KvShape(30, 3, head_dim, INT4)
    assert small.bytes_per_page == 30 * PAGE_TOKENS * 3 * n_bytes
    kv = KvPages.allocate(small, 5, "cpu")
    assert kv.storage.nbytes == 5 * small.bytes_per_page


def test_heads_of_other_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"worker\.kv_dtype: .*power of two.*heads of 80"):
        _ = KvShape(3, 2, 80, INT4).bytes_per_page


def test_all_parts_have_memory_of_their_own() -> None:
    kv = KvPages.allocate(KvShape(3, 2, WIDTH, INT4), 4, "cpu")
    parts = [part for keys in kv.keys for part in all_parts(keys, is_key=True)]
    parts += [part for values in kv.values for part in all_parts(values, is_key=False)]
    for number, part in enumerate(parts):
        part.fill_(number + 1)
    for number, part in enumerate(parts):
        assert part.eq(number + 1).all()
    assert sum(part.numel() for part in parts) == kv.storage.nbytes, "the parts fill the storage"


def test_the_transform_is_its_own_inverse_and_keeps_lengths() -> None:
    vectors = torch.randn((50, 3, 64), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(vectors_of(halves_of(vectors)), vectors)
    torch.testing.assert_close(halves_of(vectors).norm(dim=-1), vectors.unflatten(-1, (2, 32)).norm(dim=-1))


@examples(60)
@given(st.integers(1, 40), st.sampled_from([torch.float32, torch.bfloat16]), st.sampled_from([32, 64, 128]), st.integers(0, 99))
def test_what_is_read_is_near_what_was_written(n_tokens: int, dtype: torch.dtype, head_dim: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    k, v = (torch.randn((n_tokens, 2, head_dim), generator=generator).to(dtype) * 7 for _ in range(2))
    slots = torch.randperm(4 * PAGE_TOKENS, generator=generator)[:n_tokens]
    kv = stored(k, v, slots)
    for head in range(2):
        page_ids, places = slots // PAGE_TOKENS, slots % PAGE_TOKENS * 2 + head
        read = format_of(INT4).gather(kv.keys[1], kv.values[1], page_ids, places, torch.float32)
        for got, written, levels in zip(read, (k, v), (KEY_LEVELS, VALUE_LEVELS), strict=True):
            wanted = halves_of(written[:, head])
            steps = wanted.abs().amax(-1, keepdim=True) * 2 / levels
            # half a step, of a scale rounded up by a sixteenth; one rounded down cuts half a step or a whole one off the top
            assert ((halves_of(got) - wanted).abs() <= steps * (0.9 if levels == VALUE_LEVELS else 1.5)).all()
    others = torch.ones(4 * PAGE_TOKENS, dtype=torch.bool).index_fill(0, slots, value=False).view(4, PAGE_TOKENS)
    for pages, is_key in ((kv.keys[1], True), (kv.values[1], False)):
        assert not any(part[others].any() for part in all_parts(pages, is_key=is_key))
    assert not any(pages.any() for pages in (kv.keys[0], kv.values[0], kv.keys[2], kv.values[2]))


def test_a_token_has_the_same_bytes_whatever_it_is_written_with() -> None:
    """A page is written in one step, or token by token; older tokens keep their bytes."""
    k, v = (torch.randn((40, 3, 64), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    together, singly = stored(k, v, torch.arange(40)), KvPages.allocate(KvShape(3, 3, 64, INT4), 4, "cpu")
    for token in range(40):
        only = slice(token, token + 1)
        format_of(INT4).store(singly.keys[1], singly.values[1], torch.tensor([token]), k[only], v[only])
    assert singly.storage.equal(together.storage)


def test_ranks_store_the_bytes_of_their_heads() -> None:
    """Two ranks of two heads each have between them what one rank of four heads has."""
    k, v = (torch.randn((40, 4, 64), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    whole = stored(k, v, torch.arange(40))
    for rank in range(2):
        heads = slice(2 * rank, 2 * rank + 2)
        part = stored(k[:, heads], v[:, heads], torch.arange(40))
        for own, of_all, is_key in ((part.keys[1], whole.keys[1], True), (part.values[1], whole.values[1], False)):
            for mine, every in zip(all_parts(own, is_key=is_key), all_parts(of_all, is_key=is_key), strict=True):
                assert mine.equal(every[:, :, heads])


def test_zeros_tiny_and_huge_numbers() -> None:
    for levels in (KEY_LEVELS, VALUE_LEVELS):
        x = torch.tensor([[0.0, 0.0], [1e-39, -1e-40], [3e38, -1e38], [-1.0, 0.25]])
        codes, scales = quantise(x, levels)
        read = restored(codes, scales, levels)
        assert read[:2].abs().max() <= 2**-20
        assert read.isfinite().all()
        assert read[2, 0] > 19_000
        assert (read[3] - x[3]).abs().max() <= 2 / levels


def test_copies_of_pages_have_all_parts() -> None:
    kv = KvPages.allocate(KvShape(3, 2, WIDTH, INT4), 6, "cpu")
    kv.storage.random_(0, 256, generator=torch.Generator().manual_seed(0))
    kv.copy(np.array([1, 4], np.int32), np.array([2, 0], np.int32))
    assert kv.storage[2].equal(kv.storage[1])
    assert kv.storage[0].equal(kv.storage[4])


@pytest.mark.slow
@examples(40)
@given(rows_of_a_step, st.sampled_from([(1, 1), (2, 2), (3, 3)]), st.sampled_from([None, 7, 40]))
def test_torch_attends_over_them(rows: list[tuple[int, int]], heads: tuple[int, int], window: int | None) -> None:
    kv_heads, shared = heads
    step, k, v = paged_rows(rows, kv_heads, WIDTH)
    slots = torch.arange(k.shape[0] * PAGE_TOKENS)
    kv = stored(k.flatten(0, 1), v.flatten(0, 1), slots, k.shape[0])
    n = len(slots) * kv_heads
    vectors = torch.arange(n)
    width = PAGE_TOKENS * kv_heads
    read = format_of(INT4).gather(kv.keys[1], kv.values[1], vectors // width, vectors % width, torch.float32)
    q = torch.randn((step.n_tokens, kv_heads * shared, WIDTH), generator=torch.Generator().manual_seed(5))
    prepared = TorchAttention(torch.float32, shared, kv_heads).prepare(step, window)
    out = prepared.attend(q, kv.keys[1], kv.values[1], 0.4)
    expected = dense_attention(q, read[0].view(k.shape), read[1].view(v.shape), step, 0.4, window or 10_000)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
