"""The stages of a pipeline as threads of the test: one engine over the runners of all stages, linked by queues."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue, SimpleQueue

import msgspec
import torch

from gpu_workers.batch.device_state import allocate_device_state
from gpu_workers.engine import Engine, PlanRefused
from gpu_workers.grammar.grammar_table import GrammarTable
from gpu_workers.grammar.vocabulary import find_vocabulary
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.tensor_group import SingleRank
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.pipeline.link import AwaitedIds, StagedGroup, StageLink, StageParts
from gpu_workers.pipeline.stage import stage_of
from gpu_workers.runner.backend import CapturedSteps
from gpu_workers.runner.model_loading import build_model
from gpu_workers.runner.model_runner import ModelRunner
from gpu_workers.runner.stage_runner import make_runner
from messages.steps import EngineCapacity, Plan, Result

_DEADLINE_S = 60.0


@dataclasses.dataclass(frozen=True)
class Wires:
    """What one stage sends to the next, and the last one to the first."""

    hidden: list[Queue[tuple[torch.Tensor, torch.Tensor]]]
    ids: Queue[torch.Tensor]


class QueuedIds(AwaitedIds):
    def __init__(self, ids: Queue[torch.Tensor], n: int) -> None:
        self._ids, self._n = ids, n

    def wait(self) -> torch.Tensor:
        ids = self._ids.get(timeout=_DEADLINE_S)
        assert len(ids) == self._n
        return ids


class QueueLink(StageLink):
    """Stage `index` of the wires."""

    def __init__(self, wires: Wires, index: int) -> None:
        self._wires, self._index = wires, index

    def receive_hidden(self, n_tokens: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = self._wires.hidden[self._index - 1].get(timeout=_DEADLINE_S)
        assert x.shape == residual.shape == (n_tokens, width)
        assert x.dtype == residual.dtype == dtype
        return x, residual

    def send_hidden(self, x: torch.Tensor, residual: torch.Tensor) -> None:
        self._wires.hidden[self._index].put((x.clone(), residual.clone()))

    def send_ids(self, ids: torch.Tensor) -> None:
        self._wires.ids.put(ids.clone())

    def expect_ids(self, n: int) -> AwaitedIds:
        return QueuedIds(self._wires.ids, n)


@dataclasses.dataclass(frozen=True)
class LaunchedStages:
    """What the stages answer to one plan: the results of each, or why it was refused."""

    answers: list[SimpleQueue[list[Result] | Exception]]


class StagedEngine(Engine[LaunchedStages]):
    """The engine of a whole gang. Plans may be launched before those before them are collected."""

    max_in_flight = 1

    def __init__(self, runners: list[ModelRunner]) -> None:
        self.runners = runners
        self._commands: list[SimpleQueue[tuple[Plan | int, SimpleQueue[list[Result] | Exception]]]] = []
        for runner in runners:
            self._commands.append(SimpleQueue())
            threading.Thread(target=self._serve, args=(runner, self._commands[-1]), daemon=True).start()

    def capacity(self) -> EngineCapacity:
        return self.runners[-1].capacity()

    def reset(self, epoch: int) -> None:
        list(self.collect(self._tell(epoch)))

    def launch(self, plan: Plan) -> LaunchedStages:
        return self._tell(plan)

    def collect(self, launched: LaunchedStages) -> Iterator[Result]:
        answers = [queue.get(timeout=_DEADLINE_S) for queue in launched.answers]
        for answer in answers:
            if isinstance(answer, Exception):
                if isinstance(answer, PlanRefused):  # or the stages would differ from now on
                    assert all(str(answer) == str(other) for other in answers)
                raise answer
        last = answers[-1]
        assert not isinstance(last, Exception)
        yield from last

    def close(self) -> None:
        pass

    def _tell(self, command: Plan | int) -> LaunchedStages:
        launched = LaunchedStages([SimpleQueue() for _ in self.runners])
        for commands, answers in zip(self._commands, launched.answers, strict=True):
            commands.put((command, answers))
        return launched

    @staticmethod
    def _serve(runner: ModelRunner, commands: SimpleQueue[tuple[Plan | int, SimpleQueue[list[Result] | Exception]]]) -> None:
        while True:
            command, answers = commands.get()
            try:
                if isinstance(command, Plan):
                    answers.put(list(runner.collect(runner.launch(command))))
                    runner.look_ahead()
                else:
                    runner.reset(command)
                    answers.put([])
            except Exception as error:
                answers.put(error)


def staged(folder: Path, plain: ModelRunner, n_stages: int, page_dtype: torch.dtype | None = None) -> StagedEngine:
    """The model of `folder` on the CPU in float32 in `n_stages` stages, with the capacity of the runner `plain`."""
    config = read_model_config(folder)
    vocabulary = find_vocabulary(folder, config.vocabulary)
    capacity = msgspec.structs.replace(plain.capacity(), max_lease_steps=1)
    wires = Wires([Queue() for _ in range(n_stages - 1)], Queue())
    runners = []
    for index in range(n_stages):
        group = StagedGroup(SingleRank(), StageParts(stage_of(config, index, n_stages), QueueLink(wires, index)))
        placement = WeightPlacement(torch.device("cpu"), torch.float32)
        model = build_model(config, folder, placement, group=group, page_dtype=page_dtype)
        kv = KvPages.allocate(model.kv_shape, capacity.n_pages + 1, "cpu")
        state = allocate_device_state(capacity.n_slots, capacity.max_length, capacity.n_pages, "cpu")
        runners.append(make_runner(model, kv, state, capacity, CapturedSteps(), None, GrammarTable(vocabulary)))
    return StagedEngine(runners)
