"""vLLM's names for metrics that this server has under its own names, so that dashboards and scalers made for vLLM work. Pure.

Nothing is counted for them: they are made of the other metrics when somebody reads /metrics. The names and meanings are those
of vLLM's documentation ("Production Metrics"). Where one request has several sequences, vLLM counts each of them as a request;
here it is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from messages.ids import model_of, replica_of, role_of
from messages.lifecycle.lifecycle import MetricFamily, MetricSample
from messages.steps import PAGE_TOKENS

_ENDING, _FINISHED = "ending", "finished_reason"
_VLLM_REASON = {"stop": "stop", "length": "length", "cancelled": "abort", "failed": "error", "quarantined": "error"}
_SCHEDULER = "tardigrade_scheduler_"
_FREE, _CACHED, _HELD = (f"{_SCHEDULER}{state}_pages" for state in ("free", "cached", "held"))

SAME_NUMBERS = {  # our family -> vLLM's name of the same numbers, without "vllm:" and the suffix of counters
    "tardigrade_prompt_tokens": "prompt_tokens",
    "tardigrade_output_tokens": "generation_tokens",
    "tardigrade_time_to_first_token_seconds": "time_to_first_token_seconds",
    "tardigrade_inter_token_seconds": "inter_token_latency_seconds",
    "tardigrade_request_seconds": "e2e_request_latency_seconds",
    "tardigrade_request_queue_seconds": "request_queue_time_seconds",
    "tardigrade_request_prefill_seconds": "request_prefill_time_seconds",
    "tardigrade_request_decode_seconds": "request_decode_time_seconds",
    "tardigrade_request_compute_seconds": "request_inference_time_seconds",
    "tardigrade_request_prompt_tokens": "request_prompt_tokens",
    "tardigrade_request_output_tokens": "request_generation_tokens",
    f"{_SCHEDULER}running": "num_requests_running",
    f"{_SCHEDULER}waiting": "num_requests_waiting",
    f"{_SCHEDULER}preemptions": "num_preemptions",
    f"{_SCHEDULER}prompt_tokens": "prefix_cache_queries",
    f"{_SCHEDULER}cached_tokens": "prefix_cache_hits",
    f"{_SCHEDULER}step_tokens": "iteration_tokens_total",
    f"{_SCHEDULER}drafts": "spec_decode_num_drafts",
    f"{_SCHEDULER}drafted_tokens": "spec_decode_num_draft_tokens",
    f"{_SCHEDULER}accepted_draft_tokens": "spec_decode_num_accepted_tokens",
    f"{_SCHEDULER}accepted_draft_positions": "spec_decode_num_accepted_tokens_per_pos",
}


@dataclass(frozen=True)
class VllmNames:
    """Adds vLLM's families to those of an actor. `model_name_of`: the name of a served model by its number. `replicas`: of
    the main model. The label `engine` is the replica of a scheduler's families. Those of gateways are about all replicas: it
    is "0" if there is one, else "all"."""

    model_name_of: Callable[[int], str]
    replicas: int

    def added(self, actor: str, families: list[MetricFamily]) -> list[MetricFamily]:
        """The families of an actor, and after them the same under vLLM's names."""
        role = role_of(actor)
        if role not in ("gateway", "scheduler"):
            return families
        is_scheduler = role == "scheduler"
        engine = str(replica_of(actor)) if is_scheduler else "0" if self.replicas <= 1 else "all"
        labels = {"model_name": self.model_name_of(model_of(actor) if is_scheduler else 0), "engine": engine}
        by_name = {family.name: family for family in families}
        added = [_renamed(family, SAME_NUMBERS[family.name], labels) for family in families if family.name in SAME_NUMBERS]
        added += _endings(by_name, labels)
        added += _pages(by_name, labels)
        return [*families, *added]


def _renamed(family: MetricFamily, name: str, labels: Mapping[str, str]) -> MetricFamily:
    samples = [MetricSample(sample.suffix, {**sample.labels, **labels}, sample.value) for sample in family.samples]
    return MetricFamily(f"vllm:{name}", family.documentation, family.type, samples)


def _endings(by_name: Mapping[str, MetricFamily], labels: Mapping[str, str]) -> Iterable[MetricFamily]:
    """Requests by vLLM's reasons, of all APIs together."""
    if (ours := by_name.get("tardigrade_requests")) is None:
        return
    counts: dict[str, float] = defaultdict(float)
    for sample in ours.samples:
        counts[_VLLM_REASON.get(sample.labels[_ENDING], "error")] += sample.value
    samples = [MetricSample("_total", {_FINISHED: reason, **labels}, count) for reason, count in counts.items()]
    yield MetricFamily("vllm:request_success", "Requests that have ended, by reason.", ours.type, samples)


def _pages(by_name: Mapping[str, MetricFamily], labels: Mapping[str, str]) -> Iterable[MetricFamily]:
    """The share of pages that running sequences hold, and what there is. vLLM calls cached pages without a holder free, too."""
    if not {_FREE, _CACHED, _HELD} <= by_name.keys():
        return
    free, cached, held = (by_name[name].samples[0].value for name in (_FREE, _CACHED, _HELD))
    if not (n_pages := free + cached + held):
        return
    use = [MetricSample("", dict(labels), held / n_pages)]
    yield MetricFamily("vllm:kv_cache_usage_perc", "Share of KV pages in use, 0 to 1.", "gauge", use)
    facts = {"block_size": str(PAGE_TOKENS), "num_gpu_blocks": str(int(n_pages)), "enable_prefix_caching": "True"}
    config = [MetricSample("", {**facts, **labels}, 1.0)]
    yield MetricFamily("vllm:cache_config_info", "1, with the size of the KV cache.", "gauge", config)
