"""A descriptor store in a process of its own: descriptors outlive the processes that have put them, and nothing is lost or
left open when either side dies."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.descriptors import packets
from messages.descriptors.async_client import AsyncDescriptorClient
from messages.descriptors.client import DescriptorClient
from messages.descriptors.packets import MAX_META_BYTES, MAX_PACKET_BYTES, Change, Changes, Find, Found, Put, decode_answer
from messages.descriptors.server import DescriptorServer
from messages.descriptors.table import DescriptorTable
from messages.errors import DescriptorError
from tests.support.custody.descriptor_store import DEADLINE_S, StoreProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    store = StoreProcess(tmp_path / "store")
    yield store
    store.kill()


def memory(content: bytes) -> int:
    """A descriptor of new memory with this content."""
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC)
    os.write(descriptor, content)
    return descriptor


def content_of(descriptor: int) -> bytes:
    """The content of memory; closes the descriptor."""
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as view:
        os.close(descriptor)
        return view[:]


def n_open() -> int:
    return len(os.listdir("/proc/self/fd"))


def in_process_that_is_killed(path: Path, owner: str, content: bytes) -> None:
    """Another process puts memory into the store, and is killed while it still maps it."""
    pid = os.fork()
    if pid == 0:
        try:
            descriptor = memory(content)
            mmap.mmap(descriptor, 0)
            DescriptorClient(path, timeout_s=DEADLINE_S).put(owner, "kv", descriptor, content[:2])
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_memory_outlives_the_process_that_made_it(store: StoreProcess) -> None:
    for index in range(20):
        in_process_that_is_killed(store.path, f"worker/0.{index % 3}", b"%03d" % index)
    with store.client() as client:
        for rank in range(3):
            (kept,) = client.find(f"worker/0.{rank}")
            newest = max(index for index in range(20) if index % 3 == rank)
            assert (kept.key, kept.meta) == ("kv", (b"%03d" % newest)[:2])
            assert content_of(kept.descriptor) == b"%03d" % newest


def test_all_entries_of_an_owner_come_back_and_none_stays_open(store: StoreProcess) -> None:
    with store.client() as client:
        before = n_open()
        for index in range(50):
            descriptor = memory(str(index).encode())
            client.put("gateway/0", f"socket {index}", descriptor, bytes(MAX_META_BYTES))
            os.close(descriptor)
        found = client.find("gateway/0")
        assert [content_of(kept.descriptor) for kept in found] == [str(index).encode() for index in range(50)]
        client.drop("gateway/0", "socket 7")
        client.drop("gateway/1")
        assert client.find("gateway/0", "socket 7") == []
        client.drop("gateway/0")
        assert client.find("gateway/0") == []
        assert n_open() == before
        assert len(os.listdir(f"/proc/{store.process.pid}/fd")) < 20


@pytest.mark.parametrize("n_puts", [1, 40])
async def test_a_find_sees_all_that_a_dead_process_had_put(store: StoreProcess, n_puts: int) -> None:
    """The store is paused, so that it reads nothing before the successor's question waits as well."""
    os.kill(store.process.pid, signal.SIGSTOP)
    successor = AsyncDescriptorClient(store.path)  # connected first: a loop that reads in turn would answer it first
    search = asyncio.ensure_future(successor.find("gateway/0"))
    await asyncio.sleep(0)
    pid = os.fork()
    if pid == 0:
        try:
            put_quietly(store.path, n_puts)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1]) == -signal.SIGKILL
    os.kill(store.process.pid, signal.SIGCONT)
    found = await asyncio.wait_for(search, DEADLINE_S)
    assert [kept.key for kept in found] == [str(index) for index in range(1, n_puts)] + ["0"]
    assert [content_of(kept.descriptor) for kept in found][-1] == b"again"
    successor.close()


def put_quietly(path: Path, n_puts: int) -> None:
    """Put `n_puts` entries without an answer, and the first of them a second time."""
    with packets.open_link(path, DEADLINE_S) as link:
        for index in range(n_puts):
            packets.send_packet(link, Changes("gateway/0", [Change(str(index), b"", True)]), [memory(b"x")])
        packets.send_packet(link, Changes("gateway/0", [Change("0", b"", True)]), [memory(b"again")])


async def test_what_is_told_has_no_answer(store: StoreProcess) -> None:
    client = AsyncDescriptorClient(store.path)
    descriptor = memory(b"x")
    client.tell("gateway/0", [(Change(str(index), b"old", True), descriptor) for index in range(300)])
    client.tell("gateway/0", [(Change(str(index)), None) for index in range(299)])
    client.tell("gateway/0", [(Change("299", b"note"), None), (Change("unknown", b"note"), None)])
    (kept,) = await asyncio.wait_for(client.find("gateway/0"), DEADLINE_S)
    assert (kept.key, kept.meta, content_of(kept.descriptor)) == ("299", b"note", b"x")
    client.tell("gateway/0", [(Change(""), None)])
    assert await asyncio.wait_for(client.find("gateway/0"), DEADLINE_S) == []
    client.close()
    client.tell("gateway/0", [(Change("late", b"", True), descriptor)])
    os.close(descriptor)


async def test_changes_that_cannot_be_carried_out_close_their_descriptors(tmp_path: Path) -> None:
    server = DescriptorServer(tmp_path / "s", DescriptorTable(1))
    client = AsyncDescriptorClient(tmp_path / "s")
    assert await asyncio.wait_for(client.find("gateway/0"), DEADLINE_S) == []
    before = len(os.listdir("/proc/self/fd"))
    descriptor = memory(b"x")
    client.tell("gateway/0", [(Change("kept", b"", True), descriptor), (Change("too many", b"", True), descriptor)])
    packets.send_packet(client._link, Changes("gateway/0", [Change("none", b"", True)]))  # it names one that is not there
    packets.send_packet(client._link, Changes("gateway/0", [Change("kept")]), [descriptor])  # it has one that is not named
    os.close(descriptor)
    assert [kept.key for kept in await asyncio.wait_for(client.find("gateway/0"), DEADLINE_S)] == ["kept"]
    assert len(os.listdir("/proc/self/fd")) == before + 2, "the one that is kept, and the copy that was found"
    client.close()
    server.close()


def test_a_successor_of_a_killed_store_is_empty_and_takes_the_same_path(store: StoreProcess) -> None:
    client = store.client()
    descriptor = memory(b"kept by its maker")
    client.put("worker/0.0", "kv", descriptor)
    store.kill()
    with pytest.raises(DescriptorError):
        client.find("worker/0.0")
    client.close()
    with pytest.raises(DescriptorError, match="expected a descriptor store"):
        DescriptorClient(store.path)
    successor = StoreProcess(store.path)
    try:
        with successor.client() as client:
            assert client.find("worker/0.0") == []
            client.put("worker/0.0", "kv", descriptor)
            assert content_of(client.find("worker/0.0")[0].descriptor) == b"kept by its maker"
    finally:
        successor.kill()
        os.close(descriptor)


def test_a_client_may_wait_for_a_store_that_starts(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            with DescriptorClient(tmp_path / "store", wait_s=DEADLINE_S) as client:
                client.put("a", "k", 0)
            os._exit(0)
        finally:
            os._exit(1)
    store = StoreProcess(tmp_path / "store")
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        with store.client() as client:
            (kept,) = client.find("a")
            os.close(kept.descriptor)
    finally:
        store.kill()


def test_what_is_not_a_request_is_refused_and_closes_its_descriptors(store: StoreProcess) -> None:
    with store.client() as good:
        fds = Path(f"/proc/{store.process.pid}/fd")
        with packets.open_link(store.path, DEADLINE_S) as link:
            good.find("a")
            before = len(list(fds.iterdir()))
            read, write = os.pipe()
            for data in (b"\x00", b"not msgpack", b"\x92\xa3put\x01", b"\x93\xa3put\xa1\xff\xa1k"):
                socket.send_fds(link, [data], [read, write])
                refusal = packets.receive_packet(link)
                assert refusal is not None
                assert isinstance(decode_answer(refusal[0]), packets.StoreRefusal)
            packets.send_packet(link, Put("a", "k"))  # without a descriptor
            assert b"expected 1, got 0" in (packets.receive_packet(link) or (b"", []))[0]
            packets.send_packet(link, Put("a", "k"), [read, write])
            assert b"expected 1, got 2" in (packets.receive_packet(link) or (b"", []))[0]
            packets.send_packet(link, Put("a", "k", bytes(MAX_META_BYTES + 1)), [read])
            assert b"length" in (packets.receive_packet(link) or (b"", []))[0]
            good.find("a")
            assert len(list(fds.iterdir())) == before
            os.close(read)
            os.close(write)
            link.send(bytes(MAX_PACKET_BYTES + 1))  # cut by the receiver: the connection ends
            assert link.recv(100) == b""
        assert good.find("a") == []


def test_a_process_of_another_user_is_refused(store: StoreProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets.os, "getuid", lambda: 4242)
    with pytest.raises(DescriptorError, match="expected a process of user 4242"):
        store.client()


async def test_asynchronous_calls_are_answered_in_order(store: StoreProcess) -> None:
    client = AsyncDescriptorClient(store.path)
    descriptors = [memory(str(index).encode()) for index in range(60)]
    puts = [client.start_put("gateway/0", str(i), one, b"m") for i, one in enumerate(descriptors)]
    for one in descriptors:
        os.close(one)
    drop = client.start_drop("gateway/0", "3")
    found = await client.find("gateway/0")
    assert all(put.done() for put in puts)
    assert drop.done()
    assert [content_of(kept.descriptor) for kept in found] == [str(i).encode() for i in range(60) if i != 3]
    await client.drop("gateway/0")
    assert await client.find("gateway/0") == []
    store.kill()
    await asyncio.wait_for(client.closed, DEADLINE_S)
    with pytest.raises(DescriptorError):
        await client.find("gateway/0")


async def test_calls_that_wait_end_when_the_store_dies(store: StoreProcess) -> None:
    client = AsyncDescriptorClient(store.path)
    store.process.send_signal(signal.SIGSTOP)
    calls = [asyncio.ensure_future(client.put("a", str(index), 0, bytes(MAX_META_BYTES))) for index in range(500)]
    await asyncio.sleep(0)
    store.kill()
    ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), DEADLINE_S)
    assert {type(end) for end in ends} == {DescriptorError}


async def test_a_client_that_reads_nothing_holds_up_nobody(tmp_path: Path) -> None:
    server = DescriptorServer(tmp_path / "store", DescriptorTable(max_entries=64))
    descriptor = memory(b"x")
    for index in range(16):
        server.table.put("a", str(index), os.dup(descriptor), bytes(MAX_META_BYTES))
    silent = packets.open_link(tmp_path / "store", None)
    n_sent = 0
    while n_sent < 200:
        try:
            packets.send_packet(silent, Find("a"))
            n_sent += 1
        except BlockingIOError:
            break
        await asyncio.sleep(0)
    client = AsyncDescriptorClient(tmp_path / "store")
    found = await asyncio.wait_for(client.find("a"), DEADLINE_S)
    assert len(found) == 16
    packets.close_all([kept.descriptor for kept in found])
    n_read = 0
    while n_read < n_sent:  # and when it reads at last, it gets every answer
        try:
            packet = packets.receive_packet(silent)
        except BlockingIOError:
            await asyncio.sleep(0.001)
            continue
        assert packet is not None
        answer = decode_answer(packet[0])
        assert isinstance(answer, Found)
        assert len(answer.entries) == len(packet[1]) == 16
        packets.close_all(packet[1])
        n_read += 1
    client.close()
    silent.close()
    server.close()
    os.close(descriptor)
