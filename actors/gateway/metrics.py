"""Metrics of one gateway: requests by ending, latencies as clients see them, tokens, connections, the journal."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from actors.gateway.dispatch.balancing_metrics import BalancingMetrics
from actors.gateway.overload.overload_metrics import OverloadMetrics
from actors.gateway.request_metrics import RequestMetrics
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Api
from actors.gateway.requests.work_done import n_cached_of, work_of
from messages.metrics import Histogram
from messages.outcomes import EndReason

_SHORT_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
_LONG_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class GatewayMetrics:
    """All of one gateway's metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._journal_refuses = False
        self._n_prompt = self._n_cached = self._n_drafted = self._n_accepted = 0  # of requests that have ended
        self.requests = Counter(
            "tardigrade_requests", "Requests that have ended, by API and ending.", ["api", "ending"], registry=registry
        )
        self._ended: dict[tuple[Api, EndReason], Counter] = {}  # of `requests`, found by their labels
        self.refused = Counter("tardigrade_refused", "Requests that were refused, by error code.", ["code"], registry=registry)
        self.prompt_tokens = Counter("tardigrade_prompt_tokens", "Prompt tokens of accepted requests.", registry=registry)
        self.fallbacks = Counter(
            "tardigrade_fallback_requests",
            "Accepted requests that the fallback model answers, because the main one had no ready replica.",
            registry=registry,
        )
        self.output_tokens = Counter("tardigrade_output_tokens", "Output tokens made visible to clients.", registry=registry)
        self.resumed = Counter(
            "tardigrade_resumed_requests",
            "Unfinished requests taken over from the journal after a restart of the gateway.",
            registry=registry,
        )
        self.reattached = Counter(
            "tardigrade_reattached_streams", "Streams that clients have continued on a new connection.", registry=registry
        )
        self.resubmitted = Counter("tardigrade_resubmissions", "Sequences submitted to a scheduler again.", registry=registry)
        self.moved = Counter(
            "tardigrade_moved_sequences",
            "Sequences moved to another replica, because theirs could not compute.",
            registry=registry,
        )
        self.stale_rows = Counter(
            "tardigrade_stale_rows", "Token rows that arrived for closed attempts and were ignored.", registry=registry
        )
        self._n_resubmitted = self._n_moved = 0
        self.balancing = BalancingMetrics(registry)
        self._declare_connections_and_journal(registry)
        self._declare_latencies(registry)
        self.overload = OverloadMetrics(registry)
        self._by_request = RequestMetrics(registry)

    def _declare_connections_and_journal(self, registry: CollectorRegistry) -> None:
        self.zeromq_undecodable = Counter(
            "tardigrade_zeromq_undecodable", "ZeroMQ messages of clients that could not be decoded.", registry=registry
        )
        self.cut = Counter(
            "tardigrade_http_cut",
            "HTTP connections closed by the server: slow request, unread answer, or too many connections.",
            ["why"],
            registry=registry,
        )
        self.connections = Gauge("tardigrade_http_connections", "Open HTTP connections.", registry=registry)
        self.active = Gauge("tardigrade_active_sequences", "Accepted sequences that have not ended.", registry=registry)
        self.waiting = Gauge("tardigrade_waiting_sequences", "Sequences that wait for a scheduler.", registry=registry)
        self.journal_healthy = Gauge(
            "tardigrade_journal_healthy", "1 while the journal's disk accepts writes, else 0.", registry=registry
        )
        self.journal_waiting_bytes = Gauge(
            "tardigrade_journal_waiting_bytes",
            "Bytes shown to clients but not recorded yet, because the disk refuses writes.",
            registry=registry,
        )

    def _declare_latencies(self, registry: CollectorRegistry) -> None:
        self.first_token_s = _histogram(
            registry,
            "tardigrade_time_to_first_token_seconds",
            "Time from the acceptance of a request to its first visible token, unless an earlier gateway has shown it.",
            _LONG_S,
        )
        self.gap_s = _histogram(
            registry, "tardigrade_inter_token_seconds", "Time between visible tokens of one sequence.", _SHORT_S
        )
        self.whole_s = _histogram(
            registry, "tardigrade_request_seconds", "Time from the acceptance of a request to its visible ending.", _LONG_S
        )
        self.commit_s = _histogram(
            registry, "tardigrade_journal_commit_seconds", "Time of one commit of the journal.", _SHORT_S
        )

    def count_cut(self, why: str) -> None:
        """Count a connection that the server has closed."""
        self.cut.labels(why).inc()

    def accepted(self, request: Request) -> None:
        """Count a request that was accepted, with its prompt tokens."""
        self.prompt_tokens.inc(sum(request.n_prompt) * request.spec.n)
        if request.spec.fallback:
            self.fallbacks.inc()

    def count_attempts(self, n_resubmitted: int, n_moved: int) -> None:
        """Count how often sequences have been submitted again, and moved, since the start."""
        self.resubmitted.inc(n_resubmitted - self._n_resubmitted)
        self.moved.inc(n_moved - self._n_moved)
        self._n_resubmitted, self._n_moved = n_resubmitted, n_moved

    def observe_first(self, request: Request, now_s: float) -> None:
        """Record the latency of the first token of a request, which becomes visible at `now_s`."""
        self.first_token_s.observe(now_s - request.began_s)

    def observe_gaps(self, gap_s: float, n_tokens: int, n_rows: int) -> None:
        """Record that `n_rows` sequences have `n_tokens` new tokens each, `gap_s` after their last ones became visible."""
        self.gap_s.observe(gap_s / n_tokens, n_tokens * n_rows)

    def set_journal(self, is_healthy: bool, waiting_bytes: int) -> None:
        """Note whether the journal's disk accepts writes, and what waits for it."""
        self.journal_healthy.set(is_healthy)
        self._journal_refuses = not is_healthy
        self.journal_waiting_bytes.set(waiting_bytes)

    def latencies(self) -> dict[str, dict[str, float]]:
        """The latencies in the JSON of /v1/metrics, by their names there."""
        return {
            "time_to_first_token": self.first_token_s.summary_ms(),
            "inter_token": self.gap_s.summary_ms(),
            "request": self.whole_s.summary_ms(),
            "journal_commit": self.commit_s.summary_ms(),
        }

    def observe_ended(self, request: Request, ending: EndReason, now_s: float) -> None:
        """Count a request that is over: its ending, its time, and what was cached and drafted of it."""
        labels = request.spec.api, ending
        counter = self._ended.get(labels)
        if counter is None:
            counter = self._ended[labels] = self.requests.labels(*labels)
        counter.inc()
        self.whole_s.observe(now_s - request.began_s)
        self._by_request.ended(request)
        self._n_prompt += sum(request.n_prompt)
        self._n_cached += n_cached_of(request)
        if (work := work_of(request)) is not None:
            self._n_drafted += work.n_drafted
            self._n_accepted += work.n_accepted

    def statistics(self) -> dict[str, float]:
        """For `supervisor status` and `supervisor top`: requests that have ended, and their drafts."""
        drafts = {"drafts_verified": float(self._n_drafted), "drafts_accepted": float(self._n_accepted)}
        journal = {"journal_refuses": 1.0} if self._journal_refuses else {}
        return {"requests": float(self.whole_s.count), **(drafts if self._n_drafted else {}), **journal}

    def totals(self) -> dict[str, float]:
        """Requests that have ended, tokens that clients have seen, the mean time of a request, tokens for each second of it,
        the shares of cached prompt tokens and of accepted drafts: the names are those of the JSON of /v1/metrics."""
        n_requests, n_tokens = self.whole_s.count, next(iter(self.output_tokens.collect())).samples[0].value
        mean_ms = self.whole_s.summary_ms()["mean_ms"]
        busy_s = n_requests * mean_ms / 1e3
        return {
            "total_requests": n_requests,
            "total_tokens_generated": n_tokens,
            "avg_latency_ms": mean_ms,
            "avg_throughput": round(n_tokens / busy_s, 3) if busy_s else 0.0,
            "cache_hit_rate": round(self._n_cached / self._n_prompt, 6) if self._n_prompt else 0.0,
            "acceptance_rate": round(self._n_accepted / self._n_drafted, 6) if self._n_drafted else 0.0,
        }


def _histogram(registry: CollectorRegistry, name: str, documentation: str, bounds: tuple[float, ...]) -> Histogram:
    histogram = Histogram(name, documentation, bounds)
    registry.register(histogram)
    return histogram
