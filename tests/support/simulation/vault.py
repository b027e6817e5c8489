"""What takes the place of waiting for a vault, and the check of the pages that schedulers adopt and that sequences keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from actors.scheduler.gang.gang_view import GangView
from gpu_workers import hash_chain
from messages.descriptors.client import DescriptorClient, read_answer
from messages.descriptors.packets import Answer, Request, open_link, receive_packet, send_packet
from messages.errors import DescriptorError
from messages.steps import PAGE_TOKENS, Capacity, EngineCapacity

_TURNS = 3  # of the vault: it accepts the connection, reads the request
_GIVE_S = 0.002
_LONGEST_CONNECT_S = 1.0  # a real step thread waits alone; here its process stands still, and must not look frozen for that


class SimulatedDescriptorClient(DescriptorClient):
    """A client that blocks its process: the vault gets its turns at once. If it does not answer, the process stands still."""

    def __init__(self, path: Path, wait_s: float = 0.0, timeout_s: float = 5.0) -> None:
        self._timeout_s = timeout_s
        self._loop: Any = asyncio.get_running_loop()
        try:
            self._link = open_link(path, None)
        except OSError as error:
            self._loop.block(min(wait_s, _LONGEST_CONNECT_S))
            raise DescriptorError(f"{path}: {error}") from None

    def _ask(self, request: Request, descriptors: list[int] | None = None) -> tuple[Answer, list[int]]:
        try:
            send_packet(self._link, request, descriptors or [])
            for _ in range(_TURNS):
                self._loop.serve("vault/")
            packet = receive_packet(self._link)
        except BlockingIOError:
            self._loop.block(self._timeout_s)
            raise DescriptorError("the vault does not answer") from None
        except OSError as error:
            raise DescriptorError(str(error)) from None
        if packet is None:
            raise DescriptorError("the vault has closed the connection")
        return read_answer(*packet)


class _Thread:
    """Runs its work on the loop, a little later."""

    def __init__(self, target: Callable[[], None], **options: Any) -> None:
        self._target = target

    def start(self) -> None:
        asyncio.get_running_loop().call_later(_GIVE_S, self._target)


def make_vaults_virtual(patch: Callable[[Any, str, Any], None]) -> None:
    """Replace what waits for vaults. `patch(object, name, value)` must undo itself after the simulation."""
    import actors.scheduler.gang.seal_store as seal_store
    import gpu_workers.process.rank_memory as rank_memory
    import gpu_workers.vault.kept_memory as kept_memory

    patch(seal_store, "DescriptorClient", SimulatedDescriptorClient)
    patch(kept_memory, "DescriptorClient", SimulatedDescriptorClient)
    patch(seal_store, "threading", SimpleNamespace(Thread=_Thread))
    patch(rank_memory, "threading", SimpleNamespace(Thread=_Thread))


class AdoptionCheck:
    """When a gang begins, compares every page that its scheduler keeps or adopts with the hash chain of its tokens, and every
    position that a running sequence keeps.

    `workers`: the living workers' actors.
    """

    def __init__(self, workers: Callable[[], list[Any]]) -> None:
        self._workers = workers
        self.n_adopted = 0
        self.n_kept = 0  # positions in partly filled pages, of sequences and of the last scheduler
        self.problems: list[str] = []

    def watch(self, patch: Callable[[Any, str, Any], None]) -> None:
        """Look at every beginning. `patch` as above."""
        honest = GangView.begin

        def begin(gang: GangView, answer: Capacity) -> EngineCapacity:
            capacity = honest(gang, answer)
            self._check(gang, answer.memory_generation)
            return capacity

        patch(GangView, "begin", begin)

    def _check(self, gang: GangView, generation: int) -> None:
        assert gang.ledger is not None
        contents = {page: gang.ledger._content_of(page) for page in gang.ledger._hash_of}
        by_hash = {content[0]: content for content in contents.values()}
        workers = self._workers()
        gangs = {
            worker.child.spawn_spec.gang_dir for worker in workers if worker._memory_generation == generation
        }  # rank 0 knows it
        for worker in workers:
            if worker.child.spawn_spec.gang_dir in gangs:
                states = worker._steps._engine._pages.reshape(-1, PAGE_TOKENS)
                self._check_kept(gang, states, worker.child.spawn_spec.name)
                for page, content in contents.items():
                    expected = _states_of(content, by_hash)
                    self.n_adopted += 1
                    if states[page].tolist() != expected:
                        self.problems.append(f"page {page} of {worker.child.spawn_spec.name}: other content, or no prefix")

                self._check_open(gang, states, worker.child.spawn_spec.name, by_hash)

    def _check_open(self, gang: GangView, states: np.ndarray, rank: str, by_hash: dict[int, _Content]) -> None:
        """The partly filled pages that the last scheduler has left: where the page before is known, so is what is in them."""
        assert gang.ledger is not None
        left = gang.ledger._open
        if left is None:
            return
        for page in left.pages:
            tokens = left._table.open_tokens(page)
            parent = left._table.content(page)[1]
            if parent and parent not in by_hash:
                continue
            before = _states_of(by_hash[parent], by_hash)[-1] if parent else hash_chain.START
            self.n_kept += len(tokens) // 4
            if states[page].tolist()[: len(tokens) // 4] != _chain(before, np.frombuffer(tokens, "<i4").tolist()):
                self.problems.append(f"open page {page} of {rank}: other content")

    def _check_kept(self, gang: GangView, states: np.ndarray, rank: str) -> None:
        """`states`: [pages, PAGE_TOKENS] uint64, the memory of a rank."""
        for sequence in gang._queues.running:
            kept = sequence.planned
            self.n_kept += kept % PAGE_TOKENS
            if states[sequence.pages].ravel()[:kept].tolist() != _chain(hash_chain.START, sequence.tokens(0, kept).tolist()):
                self.problems.append(f"attempt {sequence.attempt} has kept other content in {rank}: {kept} of {sequence.known}")


_Content = tuple[int, int, bytes]  # hash, parent's hash, tokens


def _states_of(page: _Content, by_hash: dict[int, _Content]) -> list[int]:
    """The states of the hash chain after every token of a page; [], which no page has, when a page before it is gone."""
    chain = [page]
    while chain[-1][1]:
        if chain[-1][1] not in by_hash:
            return []
        chain.append(by_hash[chain[-1][1]])
    state, states = hash_chain.START, []
    for _, _, tokens in reversed(chain):
        states = _chain(state, np.frombuffer(tokens, "<i4").tolist())
        state = states[-1]
    return states


def _chain(state: int, tokens: list[int]) -> list[int]:
    """The states after each of these tokens."""
    states = []
    for token in tokens:
        state = (state * hash_chain.STEP + hash_chain.mix(token + 1)) % 2**64
        states.append(state)
    return states
