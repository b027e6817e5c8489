"""What a server does now, from its status reports: rates between two of them, and what stands in the newest. Pure.

A figure of an actor is as old as its heartbeat, so a rate is what was counted between two heartbeats, by their time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from messages.ids import role_of
from messages.lifecycle.cache_figures import CacheFigures, PrefixFigures, cache_figures
from messages.lifecycle.gpu_figures import gpu_figures
from messages.lifecycle.tree import ChildStatus, StatusReport, TreeState
from supervisor.usage.tenant_lines import TenantUse, used_since_start, used_today

_KEPT_RATES = 60  # seconds that the curve shows
_OLD_S = 3.0  # a rate is forgotten when its actors have said nothing for so long
_SMOOTH_S = 0.2  # two heartbeats that are closer together give no rate


class GpuRow(msgspec.Struct, frozen=True):
    """What one GPU does. None: not known."""

    name: str
    busy_percent: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None


class ChildRow(msgspec.Struct, frozen=True):
    """One process."""

    name: str
    state: str
    incarnation: int
    restarts: int
    uptime_s: float
    memory_bytes: int
    steps: int
    last_exit: str
    last_exit_age_s: float
    note: str  # why it has no process, or serves nothing


class TopFigures(msgspec.Struct, frozen=True):
    """One screen. Rates are for each second."""

    state: TreeState
    model: str
    url: str
    layout: str
    uptime_s: float
    tokens_rate: float
    prompt_tokens_rate: float
    requests_rate: float
    running: int
    waiting: int
    active: int  # sequences that gateways have accepted, without their ending
    resubmissions: int
    acceptance: float | None  # share of drafts, since the gateways began; None: there were none
    prefix: PrefixFigures | None
    more_caches: CacheFigures  # those that are on, beside the prefix cache
    children: list[ChildRow]
    gpus: list[GpuRow]
    tenants: list[TenantUse]  # since the gateways started
    tenants_today: list[TenantUse]  # those with limits
    curve: list[float]  # tokens a second, the newest last
    no_answer_s: float = 0.0  # for so long the supervisor has not answered


class _Counter:
    """A figure of one incarnation that only grows, as its heartbeats have told it."""

    def __init__(self, value: float, at_s: float) -> None:
        self.value, self.at_s, self.rate = value, at_s, 0.0

    def told(self, value: float, at_s: float) -> None:
        """A heartbeat at `at_s` has this value."""
        if at_s - self.at_s < _SMOOTH_S:
            return
        self.rate = max(value - self.value, 0.0) / (at_s - self.at_s)
        self.value, self.at_s = value, at_s


class Trends:
    """Makes screens of reports that come one after the other."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, int, str], _Counter] = {}
        self._curve = deque[float](maxlen=_KEPT_RATES)

    def screen(self, report: StatusReport, now_s: float) -> TopFigures:
        """The screen after this report, which came at `now_s` of a monotonic clock."""
        known, self._counters = self._counters, {}
        for child in report.children:
            for name in ("tokens_sampled", "prompt_tokens", "requests"):
                if name in child.statistics and child.pid:
                    self._tell(known, child, name, now_s - child.beat_age_s)
        tokens_rate = self._rate("tokens_sampled", now_s)
        self._curve.append(tokens_rate)
        schedulers, gateways = _of(report, "scheduler"), _of(report, "gateway")
        verified = _sum(gateways, "drafts_verified")
        caches = cache_figures((child.name, child.statistics) for child in report.children)
        return TopFigures(
            state=report.state,
            model=report.model,
            url=report.url,
            layout=report.layout,
            uptime_s=report.uptime_s,
            tokens_rate=tokens_rate,
            prompt_tokens_rate=self._rate("prompt_tokens", now_s),
            requests_rate=self._rate("requests", now_s),
            running=int(_sum(schedulers, "running")),
            waiting=int(_sum(schedulers, "waiting") + _sum(gateways, "waiting")),
            active=int(_sum(gateways, "active")),
            resubmissions=int(_sum(gateways, "resubmissions")),
            acceptance=_sum(gateways, "drafts_accepted") / verified if verified else None,
            prefix=caches.prefix,
            more_caches=msgspec.structs.replace(caches, prefix=None, directory=None),
            children=[_row(child) for child in report.children],
            gpus=_gpus(report),
            tenants=used_since_start(report),
            tenants_today=used_today(report),
            curve=list(self._curve),
        )

    def _tell(self, known: dict[tuple[str, int, str], _Counter], child: ChildStatus, name: str, at_s: float) -> None:
        key, value = (child.name, child.incarnation, name), child.statistics[name]
        counter = known.get(key)
        if counter is None:
            counter = _Counter(value, at_s)
        else:
            counter.told(value, at_s)
        self._counters[key] = counter

    def _rate(self, name: str, now_s: float) -> float:
        return sum(
            counter.rate
            for (actor, _, figure), counter in self._counters.items()
            if figure == name and now_s - counter.at_s < _OLD_S and _counts(actor)
        )


def _counts(actor: str) -> bool:
    """All ranks of a gang sample the same tokens, so the first one counts."""
    return role_of(actor) != "worker" or actor.partition(".")[2].rstrip("b") in ("", "0")


def _of(report: StatusReport, role: str) -> list[ChildStatus]:
    return [child for child in report.children if role_of(child.name) == role]


def _sum(children: Iterable[ChildStatus], name: str) -> float:
    return sum(child.statistics.get(name, 0.0) for child in children if child.pid)


def _row(child: ChildStatus) -> ChildRow:
    return ChildRow(
        name=child.name,
        state=child.state,
        incarnation=child.incarnation,
        restarts=child.restarts,
        uptime_s=child.uptime_s if child.pid else 0.0,
        memory_bytes=child.memory_bytes,
        steps=child.steps,
        last_exit=child.last_exit,
        last_exit_age_s=child.last_exit_age_s,
        note="; ".join(filter(None, (child.cordon, child.retired, child.phase))),
    )


def _gpus(report: StatusReport) -> list[GpuRow]:
    """The GPUs of which the monitor tells; none on a machine without any."""
    told = {gpu: figures for child in report.children for gpu, figures in gpu_figures(child.statistics).items()}
    names = GpuRow.__struct_fields__[1:]
    return [GpuRow(gpu, *(getattr(figures, name) for name in names)) for gpu, figures in sorted(told.items())]
