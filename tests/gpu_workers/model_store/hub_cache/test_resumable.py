"""One large file over HTTP: broken connections, refusals, servers without Range, and content that is wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_workers.model_store.hub_cache.resumable import RemoteFile, TransferError, fetch_file, incomplete_of
from tests.support.hub.fake_hub import FakeHub, fake_hub, sha256_of

CONTENT = random.Random(1).randbytes(3_000_000)
DIGEST = sha256_of(CONTENT)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with fake_hub({"org/model": {"model.safetensors": CONTENT}}) as running:
        yield running


class Fetch:
    """One call of `fetch_file`, with what it told and how long it waited."""

    def __init__(self, hub: FakeHub, folder: Path) -> None:
        self.target, self.n_bytes, self.most = folder / DIGEST, 0, 0
        self.waits: list[float] = []
        self._file = RemoteFile(f"{hub.url}/org/model/resolve/main/model.safetensors", len(CONTENT), DIGEST)

    def note(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        self.most = max(self.most, self.n_bytes)

    def run(self) -> None:
        fetch_file(self._file, self.target, self.note, wait=self.waits.append)


def test_a_file_comes_through_a_redirect(hub: FakeHub, tmp_path: Path) -> None:
    fetch = Fetch(hub, tmp_path)
    fetch.run()
    assert fetch.target.read_bytes() == CONTENT
    assert (fetch.n_bytes, fetch.most, fetch.waits) == (len(CONTENT), len(CONTENT), [])
    assert not incomplete_of(fetch.target).exists()


def test_it_goes_on_where_a_connection_broke(hub: FakeHub, tmp_path: Path) -> None:
    hub.breaks_after, hub.refusals = [1_000_000, 0, 500_000], []
    fetch = Fetch(hub, tmp_path)
    fetch.run()
    assert fetch.target.read_bytes() == CONTENT
    assert fetch.n_bytes == fetch.most == len(CONTENT)
    begins = [int(asked.removeprefix("bytes=").removesuffix("-") or 0) for _, asked in hub.ranges]
    assert begins == [0, 1_000_000, 1_000_000, 1_500_000]
    assert fetch.waits == [0.5, 1.0, 0.5]


def test_the_next_call_goes_on_where_the_last_one_gave_up(hub: FakeHub, tmp_path: Path) -> None:
    hub.breaks_after, hub.refuses_range = [1_000_000], True
    fetch = Fetch(hub, tmp_path)
    with pytest.raises(TransferError, match=r"HTTP status 503 .*; 1000000 of 3000000 bytes are here for the next try"):
        fetch.run()
    assert incomplete_of(fetch.target).stat().st_size == 1_000_000
    hub.refuses_range = False
    again = Fetch(hub, tmp_path)
    again.run()
    assert again.target.read_bytes() == CONTENT
    assert again.n_bytes == len(CONTENT), "the bytes of the first try count"
    assert hub.ranges[-1] == (DIGEST, "bytes=1000000-")


def test_a_server_without_range_sends_it_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.breaks_after, hub.ignores_range = [1_000_000], True
    fetch = Fetch(hub, tmp_path)
    fetch.run()
    assert fetch.target.read_bytes() == CONTENT
    assert fetch.n_bytes == len(CONTENT)


@pytest.mark.parametrize("wrong", [CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]), CONTENT + b"more"])
def test_wrong_content_is_thrown_away(hub: FakeHub, tmp_path: Path, wrong: bytes) -> None:
    hub.sends[DIGEST] = wrong
    fetch = Fetch(hub, tmp_path)
    if wrong.startswith(CONTENT):  # what follows is never written
        fetch.run()
        assert fetch.target.read_bytes() == CONTENT
        return
    with pytest.raises(TransferError, match=f"expected SHA-256 {DIGEST}, got {sha256_of(wrong)}; the next try begins anew"):
        fetch.run()
    assert list(tmp_path.iterdir()) == []


def test_what_asking_again_cannot_help_fails_at_once(hub: FakeHub, tmp_path: Path) -> None:
    hub.refusals = [403]
    fetch = Fetch(hub, tmp_path)
    with pytest.raises(TransferError, match="HTTP status 403 Forbidden"):
        fetch.run()
    assert fetch.waits == []


def test_a_left_file_that_is_too_long_is_none_of_this_one(hub: FakeHub, tmp_path: Path) -> None:
    fetch = Fetch(hub, tmp_path)
    incomplete_of(fetch.target).write_bytes(bytes(len(CONTENT) + 1))
    fetch.run()
    assert fetch.target.read_bytes() == CONTENT


def test_a_fetch_is_stopped_between_two_parts(hub: FakeHub, tmp_path: Path) -> None:
    fetch = Fetch(hub, tmp_path)
    with pytest.raises(TransferError, match="stopped"):
        fetch_file(fetch._file, fetch.target, fetch.note, is_stopped=lambda: True)
    assert 0 < incomplete_of(fetch.target).stat().st_size < len(CONTENT)
