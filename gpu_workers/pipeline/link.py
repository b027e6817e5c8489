"""How the stages of a pipeline exchange hidden states and sampled tokens, and how the ranks of a gang with stages join.

Rank t of a stage sends to rank t of the next one, and rank t of the last stage sends sampled tokens to rank t of the first one.
Each direction has a group of its own: NCCL runs the messages of one group one after the other, and a hidden state that waits
for its receiver would hold back the tokens that this receiver waits for. Only the receiver of a message waits for it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist

from gpu_workers.layers.tensor_group import DistributedGroup, GangCalls, SingleRank, TensorGroup, least_of_all, open_world
from gpu_workers.pipeline.stage import Stage

_PARTS = 2  # what the layers have added last, and all before it: the next layer adds them, as it would on one rank
_MOST_SENDING = 64  # messages whose memory is kept; plans in flight are far fewer


class AwaitedIds(Protocol):
    """Sampled tokens on their way."""

    def wait(self) -> torch.Tensor:
        """[S] int64 on the device of the rank. On CUDA only the current stream waits."""
        ...


class StageLink(Protocol):
    """One rank's way to the ranks of the stages before and after it. All ranks run the same steps in the same order."""

    def receive_hidden(self, n_tokens: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """What the stage before has sent for this step: (x, residual), each [n_tokens, width]. On CUDA only queued."""
        ...

    def send_hidden(self, x: torch.Tensor, residual: torch.Tensor) -> None:
        """Send (x, residual), each [T, hidden], to the next stage."""
        ...

    def send_ids(self, ids: torch.Tensor) -> None:
        """Send the sampled tokens, [S] int64 on the device, from the last stage to the first. They may be overwritten then."""
        ...

    def expect_ids(self, n: int) -> AwaitedIds:
        """The `n` tokens that the last stage samples in the step whose hidden states were just sent. Waits for nothing."""
        ...


@dataclass(frozen=True)
class StageParts:
    """A stage of more than one, and its way to the others."""

    stage: Stage
    link: StageLink


@dataclass(frozen=True)
class StagedGroup:
    """The ranks of one stage, and the stage."""

    group: TensorGroup
    stages: StageParts


class LoneStageRank(SingleRank):
    """The only rank of a stage, which sums nothing, but agrees with the ranks of the other stages."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def least(self, value: int) -> int:
        """The smallest of all ranks' values. Waits for the device."""
        return least_of_all(value, self._device)

    def close(self) -> None:
        """Leaves the gang."""
        dist.destroy_process_group()


@dataclass(frozen=True)
class StagePlace:
    """The place of one rank in its gang: tensor-parallel rank `rank` of `tp` in stage `stage` of `pp`."""

    rank: int
    tp: int
    stage: int
    pp: int

    @property
    def world_rank(self) -> int:
        """The rank in the gang."""
        return self.stage * self.tp + self.rank


@dataclass(frozen=True)
class StageGroups:
    """The groups of one rank. Those that it is not in are None."""

    tensor: dist.ProcessGroup | None  # the ranks of its stage, where there are several
    before: dist.ProcessGroup | None  # with the same rank of the stage before
    after: dist.ProcessGroup | None
    ids: dist.ProcessGroup | None  # of the last stage's rank and the first one's


def open_stages(place: StagePlace, rendezvous: Path, device: torch.device, timeout_s: float) -> StageGroups:
    """Join the other ranks of the gang, see `DistributedGroup.join`, and make the groups. All ranks make all groups, in the
    same order. Raises: torch.distributed's errors when the others do not join within timeout_s."""
    tp, pp = place.tp, place.pp
    open_world(place.world_rank, tp * pp, rendezvous, device, timeout_s)
    tensor = [_group([s * tp + t for t in range(tp)]) for s in range(pp)] if tp > 1 else []
    hidden = {(s, t): _group([s * tp + t, (s + 1) * tp + t]) for s in range(pp - 1) for t in range(tp)}
    ids = [_group([t, (pp - 1) * tp + t]) for t in range(tp)]
    return StageGroups(
        tensor=tensor[place.stage] if tensor else None,
        before=hidden.get((place.stage - 1, place.rank)),
        after=hidden.get((place.stage, place.rank)),
        ids=ids[place.rank] if place.stage in (0, pp - 1) else None,
    )


def stage_group(place: StagePlace, groups: StageGroups, device: torch.device) -> TensorGroup:
    """The tensor-parallel group of a rank's stage on a CPU."""
    if groups.tensor is None:
        return LoneStageRank(device)
    return DistributedGroup(place.rank, place.tp, device, groups.tensor)


def _group(ranks: list[int]) -> dist.ProcessGroup:
    return dist.new_group(ranks)  # pyright: ignore[reportReturnType]  (a rank does not use what it gets for groups of others)


class _Receiving(AwaitedIds):
    """Tokens that torch.distributed receives."""

    def __init__(self, ids: torch.Tensor, work: dist.Work | None, calls: GangCalls) -> None:
        self._ids, self._work, self._calls = ids, work, calls

    def wait(self) -> torch.Tensor:
        if self._work is not None:
            with self._calls:
                self._work.wait()
            self._work = None
        return self._ids


class DistributedLink(StageLink):
    """A link over torch.distributed: gloo on the CPU, NCCL on CUDA, where hidden states may be sent within a captured step."""

    def __init__(self, place: StagePlace, groups: StageGroups, device: torch.device) -> None:
        self._groups, self._device, self._calls = groups, device, GangCalls(device)
        self._rank_before, self._rank_after = place.world_rank - place.tp, place.world_rank + place.tp
        self._first_rank, self._last_rank = place.rank, (place.pp - 1) * place.tp + place.rank
        self._sending: deque[tuple[dist.Work | None, torch.Tensor]] = deque()

    def receive_hidden(self, n_tokens: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        parts = torch.empty((_PARTS, n_tokens, width), dtype=dtype, device=self._device)
        with self._calls:
            dist.recv(parts, self._rank_before, group=self._groups.before)
        return parts[0], parts[1]

    def send_hidden(self, x: torch.Tensor, residual: torch.Tensor) -> None:
        self._send(torch.stack((x, residual)), self._rank_after, self._groups.after)

    def send_ids(self, ids: torch.Tensor) -> None:
        self._send(ids if self._device.type == "cuda" else ids.clone(), self._first_rank, self._groups.ids)

    def expect_ids(self, n: int) -> AwaitedIds:
        ids = torch.empty(n, dtype=torch.int64, device=self._device)
        with self._calls:
            return _Receiving(ids, dist.irecv(ids, self._last_rank, group=self._groups.ids), self._calls)

    def _send(self, content: torch.Tensor, target: int, group: dist.ProcessGroup | None) -> None:
        """On CUDA the current stream goes on when the message has been sent. On a CPU a thread of gloo sends it as soon as the
        receiver asks for it, so its memory is kept until then."""
        if self._device.type == "cuda":
            dist.send(content, target, group=group)
            return
        with self._calls:
            self._sending.append((dist.isend(content, target, group=group), content))
            while self._sending and (len(self._sending) > _MOST_SENDING or _is_sent(self._sending[0][0])):
                work, _ = self._sending.popleft()
                if work is not None:
                    work.wait()


def _is_sent(work: dist.Work | None) -> bool:
    return work is None or work.is_completed()
