"""vLLM's names have the numbers of our own metrics, with vLLM's labels and meanings."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from actors.gateway.metrics import GatewayMetrics
from actors.gateway.vllm_metrics import VllmNames
from actors.scheduler.metrics import SchedulerMetrics
from messages.exposition import render_exposition
from messages.lifecycle.lifecycle import MetricFamily
from messages.metrics import take_snapshot

_ONE = VllmNames(lambda number: ("big", "small")[number], replicas=1)
Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(names: VllmNames, actor: str, families: list[MetricFamily]) -> Found:
    """vLLM's samples in the text that Prometheus reads, by name and labels."""
    text = render_exposition([(actor, names.added(actor, families))]).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("vllm:")
    }


def at(found: Found, name: str, **labels: str) -> float:
    return found[f"vllm:{name}", frozenset(labels.items())]


def test_a_gateway_counts_endings_of_all_apis_by_vllms_reasons() -> None:
    metrics = GatewayMetrics(registry := CollectorRegistry())
    for api, ending, n in (("chat", "stop", 3), ("generate", "stop", 2), ("chat", "failed", 1), ("chat", "quarantined", 1)):
        metrics.requests.labels(api, ending).inc(n)
    metrics.output_tokens.inc(40)
    metrics.first_token_s.observe(0.02, 3)
    found = read(_ONE, "gateway/1", take_snapshot(registry))
    labels = {"model_name": "big", "engine": "0", "actor": "gateway/1"}
    assert at(found, "request_success_total", finished_reason="stop", **labels) == 5
    assert at(found, "request_success_total", finished_reason="error", **labels) == 2
    assert at(found, "generation_tokens_total", **labels) == 40
    assert at(found, "time_to_first_token_seconds_count", **labels) == 3
    assert at(found, "time_to_first_token_seconds_bucket", le="0.025", **labels) == 3
    assert at(found, "request_queue_time_seconds_count", **labels) == 0
    several = VllmNames(lambda number: "big", replicas=2)
    assert {dict(labels)["engine"] for _, labels in read(several, "gateway/0", take_snapshot(registry))} == {"all"}


def test_a_scheduler_has_its_replica_and_its_model() -> None:
    metrics = SchedulerMetrics(registry := CollectorRegistry())
    assert not any(name.startswith("vllm:kv_cache") for name, _ in read(_ONE, "scheduler/0", take_snapshot(registry)))
    metrics.running.set(7)
    metrics.count_drafts(3, 2)
    metrics.count_drafts(1, 0)
    for gauge, n_pages in ((metrics.free_pages, 50), (metrics.cached_pages, 25), (metrics.held_pages, 25)):
        gauge.set(n_pages)
    found = read(_ONE, "scheduler/1000", take_snapshot(registry))
    labels = {"model_name": "small", "engine": "1000", "actor": "scheduler/1000"}
    assert at(found, "num_requests_running", **labels) == 7
    assert at(found, "kv_cache_usage_perc", **labels) == 0.25
    drafts = [at(found, f"spec_decode_num_{what}_total", **labels) for what in ("drafts", "draft_tokens", "accepted_tokens")]
    assert drafts == [2, 4, 2]
    by_position = [at(found, "spec_decode_num_accepted_tokens_per_pos_total", position=p, **labels) for p in ("0", "1")]
    assert by_position == [1, 1]
    facts = {"block_size": "16", "num_gpu_blocks": "100", "enable_prefix_caching": "True"}
    assert at(found, "cache_config_info", **facts, **labels) == 1


def test_other_actors_have_none() -> None:
    families = take_snapshot(CollectorRegistry())
    assert _ONE.added("worker/0.0", families) is families
