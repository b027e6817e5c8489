"""Draws the tables of docs/metrics.md: every metric, from the collectors of the actors themselves, and the names of vLLM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from actors.accounts.account_figures import AccountMetrics
from actors.accounts.ledger import Ledger
from actors.actor import Actor
from actors.cache_directory.directory_actor import DirectoryActor
from actors.gateway.answer_cache.hit_times import hit_times
from actors.gateway.answer_cache.saved_work import SavedWork
from actors.gateway.lifecycle.coalescing_metrics import CoalescingMetrics
from actors.gateway.metrics import GatewayMetrics
from actors.gateway.similar_answers.similar_cache import SimilarCache
from actors.gateway.tenants.tenant_usage import TenantUsage
from actors.gateway.tls.expiry import CertificateExpiry
from actors.gateway.vllm_metrics import SAME_NUMBERS
from actors.gpu_monitor.gpu_metrics import GpuMetrics
from actors.pages.answers.cache_metrics import AnswerCacheMetrics
from actors.scheduler.metrics import SchedulerMetrics
from actors.speculation.speculation_actor import SpeculationActor
from gpu_workers.embedding.embedder import Embedder
from gpu_workers.process.metrics import WorkerMetrics
from messages.lifecycle.lifecycle import MetricFamily, MetricSample
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.metrics import take_snapshot
from messages.transport.mailbox import MemoryMailbox, MemoryNetwork
from supervisor.children.child_record import ChildRecord
from supervisor.policy.child_spec import ChildSpec, Deadlines

_EVERY = "every actor"
_LABEL_OF = {"counter": "_total"}
_MADE = {  # of several samples or metrics: vLLM's name, and the first one of ours
    "request_success_total": "requests_total",
    "kv_cache_usage_perc": "scheduler_held_pages",
    "cache_config_info": "scheduler_free_pages",
}


@dataclass(frozen=True)
class MetricRow:
    """One family: its name as in the text of /metrics, its type, its labels beside `actor`, what it is."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def metric_tables() -> str:
    """One table for each kind of actor."""
    blocks = []
    for role, rows in metrics_by_role().items():
        lines = [f"**{role}**", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        for row in rows:
            labels = ", ".join(f"`{label}`" for label in row.labels)
            lines.append(f"| `{row.name}` | {row.kind} | {labels} | {row.meaning.rstrip('.')} |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def vllm_table() -> str:
    """vLLM's names, and the metrics of ours that they are made of."""
    kinds = {family.name: family.type for registry in (_gateway(), _scheduler()) for family in registry.collect()}
    rows = {_shown(f"vllm:{name}", kinds[ours]): _shown(ours, kinds[ours]) for ours, name in SAME_NUMBERS.items()}
    rows |= {f"vllm:{name}": f"tardigrade_{ours}" for name, ours in _MADE.items()}
    return "\n".join(["| vLLM's name | made of |", "|---|---|", *(f"| `{name}` | `{ours}` |" for name, ours in rows.items())])


def metrics_by_role() -> dict[str, list[MetricRow]]:
    """Every metric that an actor of a kind can have."""
    common = Actor(_spawn_spec("custodian/0"), _mailbox).registry
    found = {
        _EVERY: [*map(_row, ChildRecord(_CHILD).status(0.0, with_metrics=True).metrics), *_rows(common)],
        "gateway": _rows(_gateway()),
        "scheduler": _rows(_scheduler()),
        "worker": [*_rows(_registry(WorkerMetrics())), _DISK_PAGES],
        "gpu_monitor": _rows(_registry(GpuMetrics(lambda: []))),
        "cache_directory": _rows(DirectoryActor(_spawn_spec("cache_directory/0", _KEEPS), _mailbox).registry),
        "speculation": _rows(SpeculationActor(_spawn_spec("speculation/0"), _mailbox).registry),
        "embedder": _rows(Embedder(_spawn_spec("embedder/0", _EMBEDS), _mailbox).registry),
        "accounts": _rows(_registry(AccountMetrics(Ledger(_as_any(_Nothing()))))),
    }
    every = {row.name for row in found[_EVERY]}
    return {role: [row for row in rows if role == _EVERY or row.name not in every] for role, rows in found.items()}


_CHILD = ChildSpec("gateway/0", b"{}", Deadlines(1, 1, 1, 1, 1, 1, 1))
_KEEPS = {"keeps_answers": True, "keeps_similar": True, "answers_file": "/dev/null"}
_EMBEDS = {"model_folder": "/"}
_DISK_PAGES = MetricRow(  # RankDisk has it once pages were moved
    "tardigrade_worker_disk_pages_total", "counter", ("outcome",), "Pages of the disk tier, by what became of them"
)


class _Nothing:
    """Stands for what a collector counts: everything is 0."""

    def __getattr__(self, name: str) -> int:
        return 0

    def __len__(self) -> int:
        return 0


def _gateway() -> CollectorRegistry:
    registry, nothing = CollectorRegistry(), _as_any(_Nothing())
    GatewayMetrics(registry)
    TenantUsage(registry)
    SimilarCache(nothing, nothing, nothing, 0.0, registry)
    answers = (AnswerCacheMetrics(nothing), CoalescingMetrics(nothing), SavedWork(nothing))
    for collector in (*answers, hit_times(), CertificateExpiry(Path("/"))):
        registry.register(collector)
    return registry


def _scheduler() -> CollectorRegistry:
    registry = CollectorRegistry()
    SchedulerMetrics(registry)
    return registry


def _as_any(value: object) -> Any:
    return value


def _registry(collector: Any) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def _mailbox(name: str, incarnation: int, endpoint: str) -> MemoryMailbox:
    return MemoryMailbox(MemoryNetwork(), name, incarnation, endpoint)


def _spawn_spec(name: str, settings: dict[str, Any] | None = None) -> SpawnSpec:
    return SpawnSpec(
        name=name, incarnation=1, endpoint=f"memory://{name}", supervisor_endpoint="memory://supervisor",
        supervisor_incarnation=1, run_dir="", log_format="console", log_level="error",
        settings=msgspec.Raw(msgspec.json.encode(settings or {})),
    )  # fmt: skip


def _rows(registry: CollectorRegistry) -> list[MetricRow]:
    """The families of a registry. prometheus_client tells labels without values nowhere but in private fields."""
    labels = {}
    for collector in _as_any(registry)._collector_to_names:
        for family in collector.collect():
            labels[family.name] = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
    return [_row(family, labels.get(family.name, ())) for family in take_snapshot(registry)]


def _row(family: MetricFamily, labels: Iterable[str] = ()) -> MetricRow:
    known = dict.fromkeys(labels) or _labels_of(family.samples)
    named = tuple(label for label in known if label != "le")
    return MetricRow(_shown(family.name, family.type), family.type, named, family.documentation)


def _labels_of(samples: list[MetricSample]) -> dict[str, None]:
    return dict.fromkeys(label for sample in samples for label in sample.labels)


def _shown(name: str, kind: str) -> str:
    return name + _LABEL_OF.get(kind, "")
