"""The scheduler's Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from actors.pages.ledger_statistics import LedgerStatistics
from actors.scheduler.gang.gang_view import GangView
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.sequences.draft_metrics import AcceptedByPosition
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.tier_metrics import TierMetrics
from messages.metrics import Histogram as FastHistogram
from messages.steps import PAGE_TOKENS

_STEP_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_POLICY_FIGURES = {  # fields of PolicyFigures
    "hits": "Pages reused while this policy chose what is evicted, since the page ledger is new",
    "evictions": "Cached pages overwritten by the choice of this policy, since the page ledger is new",
    "ghost_hits": "Pages computed again soon after this policy had evicted them, since the page ledger is new",
    "shadow_hits": "Pages that this policy alone would have reused, as the adaptive policy estimates, since the ledger is new",
}


class SchedulerMetrics:
    """All metrics of one scheduler. They are updated once per step, not per token."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, what: str) -> Counter:
            return Counter(f"tardigrade_scheduler_{name}", what, registry=registry)

        self.steps = counter("steps", "Steps whose result has been applied")
        self.plans = counter("plans", "Plans sent")
        self.generated_tokens = counter("generated_tokens", "Tokens sampled and kept")
        self.computed_tokens = counter("computed_tokens", "Token positions planned (prefill and decode)")
        self.cached_tokens = counter("cached_tokens", "Prompt tokens whose prefill was skipped by prefix reuse")
        self.prefill_saved_s = counter(
            "prefill_saved_seconds", "Time that prefill of the cached tokens would have taken, by the steps that were measured"
        )
        self.copied_pages = counter("copied_pages", "Partly filled pages that plans copied for prompts which end alike")
        self.prompt_tokens = counter(
            "prompt_tokens", "Prompt tokens of sequences that have entered; once, however often they were preempted"
        )
        self.preemptions = counter("preemptions", "Sequences whose pages were taken back")
        self.displaced = counter("displaced", "Sequences that have given their slots to others, because of the policy")
        self.urgent_plans = counter("urgent_plans", "Plans of urgent prompts that ran beside those in flight")
        self.recomputed = counter("recomputed_sequences", "Running sequences whose gang was lost; they go on at what is kept")
        self.endings = Counter("tardigrade_scheduler_endings", "Endings by reason", ["reason"], registry=registry)
        self.batch_rows = Histogram(
            "tardigrade_scheduler_batch_rows",
            "Sequences computed together in one plan",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
            registry=registry,
        )
        self._step_tokens = FastHistogram(
            "tardigrade_scheduler_step_tokens", "Token positions computed in one step, of prompts and answers.", _STEP_TOKENS
        )
        registry.register(self._step_tokens)
        self._make_gauges(registry)
        self._make_drafts(registry, counter)
        self._tiers = TierMetrics(registry)
        self.n_computed = 0  # prompt tokens planned
        self.n_generated = 0  # tokens sampled and kept
        self._n_prompt = self._n_cached = 0  # tokens of admitted sequences
        self._n_displaced = 0
        self._saved_s = 0.0

    def _make_gauges(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, what: str) -> Gauge:
            return Gauge(f"tardigrade_scheduler_{name}", what, registry=registry)

        self.kept_tail_tokens = gauge("kept_tail_tokens", "Tokens in partly filled pages that were kept when a gang was lost")
        self.waiting = gauge("waiting", "Sequences waiting for a slot, pages or the gang")
        self.late = gauge("late", "Sequences that could not meet ttft_ms or deadline_ms any more when they waited (policy sla)")
        self.policy = Gauge("tardigrade_scheduler_policy", "1 for the policy in use", ["policy"], registry=registry)
        self.queued_tokens = gauge("queued_tokens", "Tokens that waiting sequences are expected to take, prompts and output")
        self.degradation_level = gauge("degradation_level", "0 normal, 1 no drafts, 2 and 3 smaller requests, 4 shedding")
        self.running = gauge("running", "Sequences in slots")
        self.on_probation = gauge("on_probation", "Sequences that are computed alone, because the gang died twice with them")
        self.free_pages = gauge("free_pages", "Pages without content")
        self.cached_pages = gauge("cached_pages", "Pages without a holder that can be reused by content")
        self.held_pages = gauge("held_pages", "Pages held by running sequences")
        self.returned_pages = gauge("returned_pages", "Pages whose memory is with the system, until they are needed")
        self.reused_pages = gauge("reused_pages", "Pages reused by content, since the page ledger is new")
        self.evicted_pages = gauge("evicted_pages", "Cached pages overwritten, since the page ledger is new")
        self.saved_bytes = gauge("saved_bytes", "Keys and values of the cached tokens, at all ranks, which were not computed")
        self.page_bytes = gauge("page_bytes", "Memory of held and cached pages at all ranks")
        self.oldest_page_seconds = gauge("oldest_page_age_seconds", "Age of the oldest content that can be reused")
        self.by_policy = {
            field: Gauge(f"tardigrade_scheduler_eviction_{field}", what, ["policy"], registry=registry)
            for field, what in _POLICY_FIGURES.items()
        }

    def _make_drafts(self, registry: CollectorRegistry, counter: Callable[[str, str], Counter]) -> None:
        self.drafted_tokens = counter("drafted_tokens", "Draft tokens verified")
        self.drafts = counter("drafts", "Drafts verified, each of one or more tokens")
        self.accepted_tokens = counter("accepted_draft_tokens", "Draft tokens accepted")
        self._accepted = AcceptedByPosition()
        registry.register(self._accepted)

    def count_plan(self, planned: PlannedStep) -> None:
        """Count a plan that has been sent."""
        self.plans.inc()
        self.batch_rows.observe(planned.n_rows)
        self.computed_tokens.inc(planned.n_tokens)
        n_steps = planned.plan.n_steps
        self._step_tokens.observe(planned.n_tokens / n_steps, n_steps)
        self.n_computed += planned.prompt_tokens
        if planned.plan.new:
            self._count_prompts(planned.n_asked, planned.n_cached, planned.saved_s)
        if planned.plan.copies is not None:
            self.copied_pages.inc(len(planned.plan.copies.targets))
        if planned.n_preempted:
            self.preemptions.inc(planned.n_preempted)
        if planned.plan.is_urgent:
            self.urgent_plans.inc()
        if planned.n_displaced:
            self.displaced.inc(planned.n_displaced)
            self._n_displaced += planned.n_displaced

    def count_generated(self, n_tokens: int) -> None:
        """Count tokens that have been sampled and kept."""
        self.generated_tokens.inc(n_tokens)
        self.n_generated += n_tokens

    def _count_prompts(self, n_tokens: int, n_cached: int, saved_s: float) -> None:
        """Count the prompts of sequences that enter for the first time: those that were preempted find their own pages."""
        self.prompt_tokens.inc(n_tokens)
        self.cached_tokens.inc(n_cached)
        self.prefill_saved_s.inc(saved_s)
        self._n_prompt += n_tokens
        self._n_cached += n_cached
        self._saved_s += saved_s

    def count_drafts(self, n_drafts: int, n_accepted: int) -> None:
        """Count the drafts of a row that has been verified."""
        self.drafts.inc()
        self.drafted_tokens.inc(n_drafts)
        self.accepted_tokens.inc(n_accepted)
        self._accepted.count(n_accepted)

    def show(self, queues: SequenceQueues, gang: GangView) -> dict[str, float]:
        """Set the gauges of sequences and pages. Returns the numbers for `supervisor status`."""
        n_waiting, n_running, n_on_probation = len(queues.waiting), len(queues.running), len(gang.probation)
        self.waiting.set(n_waiting)
        self.queued_tokens.set(queues.work.n_tokens)
        self.running.set(n_running)
        self.on_probation.set(n_on_probation)
        self.kept_tail_tokens.set(gang.n_tail_tokens)
        numbers = {"steps": float(gang.tracker.n_done), "epoch": float(gang.tracker.epoch)}
        numbers |= {"waiting": float(n_waiting), "running": float(n_running)}
        numbers |= {f"policy_{queues.policy.name.value}": 1.0, "displaced": float(self._n_displaced)}
        self.policy.labels(policy=queues.policy.name.value).set(1.0)
        if queues.policy.n_late:
            self.late.set(queues.policy.n_late)
            numbers |= {"late": float(queues.policy.n_late)}
        numbers |= {"tail_tokens_kept": float(gang.n_tail_tokens)}
        numbers |= {"pages_adopted": float(gang.n_adopted), "on_probation": float(n_on_probation)}
        if gang.ledger is not None:
            pages = gang.ledger.statistics()
            self._show_pages(pages)
            numbers |= {"pages": float(pages.pages), "pages_held": float(pages.held), "pages_cached": float(pages.cached)}
            numbers |= {"pages_returned": float(pages.returned)} if pages.returned else {}
            numbers |= {"pages_reused": float(pages.hits), "pages_evicted": float(pages.evictions)}
            numbers |= self._show_policies(pages)
            if gang.capacity is not None:
                n_bytes = (pages.held + pages.cached) * gang.capacity.page_bytes
                self.page_bytes.set(n_bytes)
                n_saved = self._n_cached * gang.capacity.page_bytes // PAGE_TOKENS
                self.saved_bytes.set(n_saved)
                numbers |= {"pages_bytes": float(n_bytes), "pages_oldest_s": round(pages.oldest_s, 1)}
                numbers |= {"pages_saved_bytes": float(n_saved)}
                numbers |= self._tiers.show(gang.tier, gang.capacity)
        numbers |= {"prompt_tokens": float(self._n_prompt), "cached_tokens": float(self._n_cached)}
        numbers |= {"prefill_saved_s": round(self._saved_s, 3)}
        return numbers

    def _show_pages(self, pages: LedgerStatistics) -> None:
        """Set the gauges of pages by state, of reuse and of evictions."""
        self.free_pages.set(pages.free)
        self.cached_pages.set(pages.cached)
        self.held_pages.set(pages.held)
        self.returned_pages.set(pages.returned)
        self.reused_pages.set(pages.hits)
        self.evicted_pages.set(pages.evictions)
        self.oldest_page_seconds.set(pages.oldest_s)

    def _show_policies(self, pages: LedgerStatistics) -> dict[str, float]:
        """Set the gauges of each eviction policy. Returns the same numbers, with names such as `lru_hits`."""
        numbers = {}
        for name, figures in pages.by_policy.items():
            for field, metric in self.by_policy.items():
                number = float(getattr(figures, field))
                metric.labels(policy=name).set(number)
                numbers[f"{name}_{field}"] = number
        return numbers
