"""Pages whose memory goes back to the system: the system has it then, they read as zeros, and no other page changes."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.vault.host_region import HostRegion
from gpu_workers.vault.returned_pages import return_pages
from tests.support.depth import examples

_SYSTEM_PAGE = os.sysconf("SC_PAGE_SIZE")


def _region(n_bytes: int, is_shared: bool) -> tuple[HostRegion, int]:
    """A region full of ones, and the descriptor of its shared memory, which the caller closes; -1: it is private."""
    region = HostRegion(n_bytes)
    descriptor = region.make() if is_shared else -1
    if is_shared:
        region.share(descriptor)
    np.frombuffer(region.buffer, np.uint8)[:] = 1
    return region, descriptor


def _resident_bytes(region: HostRegion) -> int:
    """Memory of this process that the region takes, as the system counts it."""
    total, is_inside = 0, False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                first, end = (int(part, 16) for part in words[0].split("-"))
                is_inside = first < region._address + region.n_bytes and region._address < end
            elif is_inside and words[0] == "Rss:":
                total += int(words[1]) * 1024
    return total


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_system_has_the_memory_and_the_page_reads_as_zeros(is_shared: bool) -> None:
    n_pages, page_bytes = 64, 40 * _SYSTEM_PAGE
    region, descriptor = _region(n_pages * page_bytes, is_shared)
    before_bytes = _resident_bytes(region)
    return_pages(region, page_bytes, n_pages, np.arange(8, 56, dtype=np.int32)[::-1])
    assert before_bytes - _resident_bytes(region) >= 44 * page_bytes
    if is_shared:  # before anybody reads there, which takes memory again
        assert os.fstat(descriptor).st_blocks * 512 < 20 * page_bytes, "the file has a hole"
    pages = np.frombuffer(region.buffer, np.uint8).reshape(n_pages, page_bytes)
    assert not pages[8:56].any()
    assert pages[:8].all()
    assert pages[56:].all()
    pages[20] = 7
    assert (pages[20] == 7).all(), "it takes memory again"
    if is_shared:
        other = HostRegion(n_pages * page_bytes)
        other.share(descriptor)
        assert (np.frombuffer(other.buffer, np.uint8).reshape(n_pages, page_bytes) == pages).all()
        os.close(descriptor)


@examples(60)
@given(
    page_bytes=st.sampled_from([24, 128, 1000, _SYSTEM_PAGE, 3 * _SYSTEM_PAGE // 2, 2 * _SYSTEM_PAGE]),
    pages=st.sets(st.integers(0, 39)),
    is_shared=st.booleans(),
)
def test_pages_of_any_size_read_as_zeros_and_their_neighbours_keep_their_content(
    page_bytes: int, pages: set[int], is_shared: bool
) -> None:
    region, descriptor = _region(40 * page_bytes, is_shared)
    return_pages(region, page_bytes, 40, np.array(list(pages), np.int32))
    contents = np.frombuffer(region.buffer, np.uint8).reshape(40, page_bytes)
    for page in range(40):
        assert (contents[page] == (page not in pages)).all()
    if is_shared:
        os.close(descriptor)


@pytest.mark.parametrize("page", [-1, 40])
def test_an_unknown_page_is_refused_and_nothing_is_returned(page: int) -> None:
    region, _ = _region(41 * 128, is_shared=False)
    with pytest.raises(ValueError, match=r"pages: expected numbers from 0 to 39"):
        return_pages(region, 128, 40, np.array([3, page], np.int32))
    assert np.frombuffer(region.buffer, np.uint8).all()


def test_only_a_part_of_the_region_can_be_given_back() -> None:
    region = HostRegion(4096)
    with pytest.raises(ValueError, match=r"expected a part of 4096, got 4096 from 1 on"):
        region.give_back(1, 4096)
