"""The metrics of a worker. Counting is cheap enough for every step; metric families are built only for beats with metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from messages.metrics import Histogram
from messages.steps import Plan, Result
from messages.wire.arrays import total

_STEP_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_ROWS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class WorkerMetrics(Collector):
    """Counters of one worker process since its start."""

    def __init__(self) -> None:
        self.steps = 0
        self.refused = 0
        self.dropped = 0  # plans and results of another epoch
        self.tokens_computed = 0
        self.tokens_sampled = 0
        self.drafts_verified = 0
        self.drafts_accepted = 0
        self.rows_last = 0
        self.late_compilations = 0
        self._step_s = Histogram("tardigrade_worker_step_seconds", "Time of one step on the device.", _STEP_S)
        self._rows = Histogram("tardigrade_worker_rows", "Sequences that run together in one step.", _ROWS)

    def count_plan(self, plan: Plan) -> None:
        """Count a plan that was received and accepted."""
        self.rows_last = len(plan.row_slots)
        for _ in range(plan.n_steps):
            self._rows.observe(self.rows_last)
        self.tokens_computed += total(plan.row_counts) * plan.n_steps
        self.drafts_verified += len(plan.draft_ids)

    def count_result(self, result: Result) -> None:
        """Count a step that has ended."""
        self.steps += 1
        if not math.isnan(result.compute_s):
            self._step_s.observe(result.compute_s)
        self.tokens_sampled += len(result.ids)
        self.drafts_accepted += len(result.ids) - len(result.slots)

    def statistics(self) -> dict[str, float]:
        """Figures for `supervisor status`."""
        return {
            "steps": self.steps,
            "rows": self.rows_last,
            "tokens_computed": self.tokens_computed,
            "tokens_sampled": self.tokens_sampled,
            "refused": self.refused,
        }

    def collect(self) -> Iterable[Metric]:
        """The metric families with their present values."""
        counters = {
            "tardigrade_worker_steps": ("Steps that have ended.", self.steps),
            "tardigrade_worker_plans_refused": ("Plans that could not be run.", self.refused),
            "tardigrade_worker_dropped": ("Plans and results of another epoch that were dropped.", self.dropped),
            "tardigrade_worker_tokens_computed": ("Tokens that the model computed.", self.tokens_computed),
            "tardigrade_worker_tokens_sampled": ("Tokens that were emitted.", self.tokens_sampled),
            "tardigrade_worker_drafts_verified": ("Draft tokens that were verified.", self.drafts_verified),
            "tardigrade_worker_late_compilations": (
                "Kernels that were compiled while requests waited; expected: 0.",
                self.late_compilations,
            ),
            "tardigrade_worker_drafts_accepted": ("Draft tokens that were accepted.", self.drafts_accepted),
        }
        for name, (documentation, value) in counters.items():
            yield CounterMetricFamily(name, documentation, value)
        yield GaugeMetricFamily("tardigrade_worker_rows_now", "Sequences in the newest step.", self.rows_last)
        yield from self._step_s.collect()
        yield from self._rows.collect()
