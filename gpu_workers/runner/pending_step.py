"""Steps that have been launched, and how their results are read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.grammar.grammar_step import GrammarStep
from gpu_workers.sampling.draft_verification import accept_drafts, emitted_indices
from gpu_workers.sampling.logprobs import ComputedLogprobs, emitted_logprobs
from gpu_workers.sampling.prompt_logprobs import ComputedPrompts
from messages.steps import Plan, Result
from messages.wire.arrays import int32s


@dataclass(frozen=True)
class PendingStep:
    """One step that has been launched: what to wait for and how to read it."""

    plan: Plan
    number: int  # of the step
    result_slots: np.ndarray  # [N] int32
    widths: np.ndarray  # [N] int64: samples of each row
    ids: torch.Tensor  # [S] int64 on the host; valid after the second event
    logprobs: ComputedLogprobs | None
    compute_s: float  # used if there are no events, when the step has ended already
    events: tuple[torch.cuda.Event, torch.cuda.Event] | None  # of a step on a device: before its first kernel, after its last
    grammars: GrammarStep | None = None
    prompts: ComputedPrompts | None = None  # on the host; valid after the second event
    arrives: bool = False  # its layers have waited for a load of pages

    def seconds(self) -> float:
        """How long the step took on its device. It must have ended. NaN: nobody knows, because it has waited meanwhile."""
        if self.arrives:
            return math.nan
        return self.events[0].elapsed_time(self.events[1]) / 1e3 if self.events is not None else self.compute_s


def timed_event() -> torch.cuda.Event:
    """A CUDA event that records its time."""
    return torch.cuda.Event(enable_timing=True)


def read_step(pending: PendingStep) -> Result:
    """Give a step its masks, wait for its end, count how many of its drafts are accepted, and ask its grammars what follows."""
    if pending.grammars is not None:
        pending.grammars.give()
    if pending.events is not None:
        pending.events[1].synchronize()
    samples = pending.ids.numpy()
    counts = accept_drafts(samples, pending.widths, pending.plan.draft_ids)
    emitted = emitted_indices(pending.widths, counts)
    ids = samples[emitted]
    return Result(
        epoch=pending.plan.epoch,
        step=pending.number,
        slots=int32s(pending.result_slots),
        counts=int32s(counts),
        ids=int32s(ids),
        compute_s=pending.seconds(),
        logprobs=emitted_logprobs(pending.logprobs, emitted),
        grammars=pending.grammars.report(counts, ids) if pending.grammars is not None else None,
        prompts=pending.prompts.parts() if pending.prompts is not None else [],
    )
