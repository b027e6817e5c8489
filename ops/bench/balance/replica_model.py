"""A replica that is a formula: slots, a queue in order of arrival, chunked prefill, a prefix cache, load reports.

time of a step = (_STEP_S + prefill tokens of the step * _PREFILL_S + decoding rows * _ROW_S) * slowness
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from messages.generation.replica_load import ReplicaLoad
from messages.steps import PAGE_TOKENS
from ops.bench.balance.virtual_time import VirtualTime

_STEP_S, _PREFILL_S, _ROW_S = 0.008, 2.5e-5, 5e-5
_N_SLOTS, _CHUNK_TOKENS, _CACHED_PAGES = 32, 1024, 12_000
_REPORT_S, _PARTS = 0.1, 8
_RATE_WEIGHT = 0.05


@dataclass(slots=True)
class ModelledWork:
    """One attempt at a replica."""

    gateway: str
    attempt: int
    hashes: list[int]  # of the pages of its prompt
    n_prefill: int  # tokens of its prompt that are not computed
    n_output: int  # tokens of its answer that are not computed


class ReplicaModel:
    """`on_first`, `on_end`: called with the work that has its first token, or its last one; `report` with a new load."""

    def __init__(
        self,
        time: VirtualTime,
        on_first: Callable[[ModelledWork], None],
        on_end: Callable[[ModelledWork], None],
        report: Callable[[ReplicaLoad], None],
    ) -> None:
        self._time, self._on_first, self._on_end, self._report = time, on_first, on_end, report
        self.slowness = 1.0
        self.computed_tokens = self.cached_tokens = 0
        self.waiting: deque[ModelledWork] = deque()
        self._running: list[ModelledWork] = []
        self._pages: OrderedDict[int, None] = OrderedDict()  # the last used one last
        self._is_stepping, self._told, self._number = False, (0, 0), 0
        self._prefill_rate = self._decode_rate = 0.0
        time.later(_REPORT_S, self._tell)

    def pages_of(self, hashes: list[int]) -> int:
        """How many leading pages it has cached."""
        n = 0
        while n < len(hashes) and hashes[n] in self._pages:
            n += 1
        return n

    def submit(self, work: ModelledWork) -> None:
        """A gateway submits an attempt."""
        self.waiting.append(work)
        if not self._is_stepping:
            self._step()

    def give_back(self, gateway: str, attempts: list[int]) -> list[int]:
        """The attempts of these that have not begun; they leave the queue."""
        wanted = set(attempts)
        given = [one for one in self.waiting if one.gateway == gateway and one.attempt in wanted]
        self.waiting = deque(one for one in self.waiting if one not in given)
        return [one.attempt for one in given]

    def _step(self) -> None:
        while self.waiting and len(self._running) < _N_SLOTS:
            self._begin(self.waiting.popleft())
        self._is_stepping = bool(self._running)
        if not self._running:
            return
        left, parts = _CHUNK_TOKENS, list[tuple[ModelledWork, int]]()
        for one in self._running:
            if one.n_prefill and left:
                part = min(one.n_prefill, left)
                left -= part
                parts.append((one, part))
        rows = [one for one in self._running if not one.n_prefill]
        n_prefill = _CHUNK_TOKENS - left
        step_s = (_STEP_S + n_prefill * _PREFILL_S + len(rows) * _ROW_S) * self.slowness
        self._prefill_rate += _RATE_WEIGHT * (n_prefill / step_s - self._prefill_rate)
        self._decode_rate += _RATE_WEIGHT * (len(rows) / step_s - self._decode_rate)
        self._time.later(step_s, lambda: self._end_step(parts, rows))

    def _begin(self, work: ModelledWork) -> None:
        n_cached = min(self.pages_of(work.hashes) * PAGE_TOKENS, work.n_prefill - 1)
        self.cached_tokens += n_cached
        work.n_prefill -= n_cached
        self._running.append(work)

    def _end_step(self, parts: list[tuple[ModelledWork, int]], rows: list[ModelledWork]) -> None:
        first: list[ModelledWork] = []
        for one, n_tokens in parts:
            one.n_prefill -= n_tokens
            self.computed_tokens += n_tokens
            if not one.n_prefill:
                self._keep(one.hashes)
                first.append(one)
        self.computed_tokens += len(rows) + len(first)
        for one in (*rows, *first):
            one.n_output -= 1
        ended = [one for one in (*rows, *first) if one.n_output <= 0]
        self._running = [one for one in self._running if one not in ended]
        for one in first:
            self._on_first(one)
        for one in ended:
            self._on_end(one)
        self._step()

    def _keep(self, hashes: list[int]) -> None:
        for page in hashes:
            self._pages.pop(page, None)
            self._pages[page] = None
        while len(self._pages) > _CACHED_PAGES:
            self._pages.popitem(last=False)

    def _tell(self) -> None:
        """As a scheduler: a report when a number has changed by more than an eighth."""
        waiting = sum(one.n_prefill + one.n_output for one in self.waiting)
        running = sum(one.n_prefill + max(one.n_output, 1) for one in self._running)
        if any(abs(now - told) * _PARTS > max(told, 64) for now, told in zip((waiting, running), self._told, strict=True)):
            self._told, self._number = (waiting, running), self._number + 1
            n_waiting, n_running = len(self.waiting), len(self._running)
            self._report(
                ReplicaLoad(
                    number=self._number, waiting=n_waiting, running=n_running, waiting_tokens=waiting, running_tokens=running,
                    pages_used=0, pages=0, prefill_rate=self._prefill_rate, decode_rate=self._decode_rate,
                )
            )  # fmt: skip
        self._time.later(_REPORT_S, self._tell)
