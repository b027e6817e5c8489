"""What the page shows of the whole server at one moment, and what of it a viewer may see. Pure."""

from __future__ import annotations

import msgspec

from actors.gateway.page.devices import DeviceRow, device_rows
from actors.gateway.page.gateway_counts import sequences_in
from actors.gateway.page.pace import PaceFigures
from actors.gateway.page.requests import MOST_ROWS, RequestRow, RequestRows
from actors.gateway.page.tenants import TenantLine, tenant_rows
from messages.ids import replica_of, role_of
from messages.lifecycle.cache_figures import CacheFigures, cache_figures
from messages.lifecycle.lifecycle import MetricFamily
from messages.lifecycle.tree import ChildState, ChildStatus, RestartProgress, StatusReport

_OF_REPLICAS = ("scheduler", "vault", "worker")
_BRANCHES = {"gateway": "clients", "custodian": "clients", "accounts": "clients"}


class Audience(msgspec.Struct, frozen=True):
    """Who looks. `tenant`: whose requests and usage alone it may see; None: those of all."""

    tenant: str | None = None


class SupervisorRow(msgspec.Struct, frozen=True):
    """The supervisor. `silent_s`: how long it has not answered; what it owns is as old. `pid` 0: unknown, or not shown."""

    is_heard: bool
    silent_s: float
    pid: int = 0
    parent_deaths: int = 0


class ActorRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One actor; the fields are those of `ChildStatus`. `branch`: where it stands in the tree."""

    name: str
    branch: str
    life: int
    state: ChildState
    restarts: int
    restarts_left: int
    uptime_s: float
    beat_age_s: float
    memory_bytes: int
    steps: int
    phase: str = ""
    pid: int = 0
    has_spare: bool = False
    last_exit: str = ""
    last_exit_age_s: float = 0.0
    retired: str = ""
    cordon: str = ""


class Sequences(msgspec.Struct, frozen=True):
    """Sequences of the whole server. `waiting`: for a scheduler, or in the queue of one."""

    active: int
    running: int
    waiting: int


class Snapshot(msgspec.Struct, frozen=True):
    """All that one event of /v1/live says. `time_s`: Unix time. `n_requests`: also those that `requests` leaves out."""

    time_s: float
    version: str
    gateway: str
    model: str
    layout: str
    state: str
    uptime_s: float
    supervisor: SupervisorRow
    actors: list[ActorRow]
    pace: PaceFigures
    sequences: Sequences
    caches: CacheFigures
    devices: list[DeviceRow]
    requests: list[RequestRow]
    n_requests: int
    tenants: list[TenantLine]
    has_tenants: bool
    restart: RestartProgress | None = None


class Collected(msgspec.Struct, frozen=True):
    """One collection for all viewers. `report`: the newest one of the supervisor, or one without children. `own_families`: the
    metrics of this gateway as of now."""

    time_s: float
    version: str
    gateway: str
    report: StatusReport
    supervisor: SupervisorRow
    own_families: list[MetricFamily]
    pace: PaceFigures
    requests: RequestRows
    has_tenants: bool

    def by_actor(self) -> list[tuple[str, list[MetricFamily]]]:
        """The metrics of each actor."""
        others = [(one.name, one.metrics) for one in self.report.children if one.name != self.gateway]
        return [(self.gateway, self.own_families), *others]

    def families(self) -> list[MetricFamily]:
        """The metrics of all actors."""
        return [family for _, of_actor in self.by_actor() for family in of_actor]


def snapshot_for(audience: Audience, found: Collected) -> Snapshot:
    """What this audience sees of a collection."""
    report, statistics = found.report, [(one.name, one.statistics) for one in found.report.children]
    rows, n_requests = _requests(audience, found.requests)
    sees_all = audience.tenant is None
    return Snapshot(
        time_s=found.time_s,
        version=found.version,
        gateway=found.gateway,
        model=report.model,
        layout=report.layout,
        state=report.state.value if report.children else "unknown",
        uptime_s=report.uptime_s,
        supervisor=found.supervisor if sees_all else msgspec.structs.replace(found.supervisor, pid=0),
        actors=[_actor(child, sees_all=sees_all) for child in report.children],
        pace=found.pace,
        sequences=_sequences(found),
        caches=cache_figures(statistics),
        devices=device_rows(found.families()),
        requests=rows,
        n_requests=n_requests,
        tenants=_tenants(audience, found),
        has_tenants=found.has_tenants,
        restart=report.restart,
    )


def branch_of(name: str) -> str:
    """Where an actor stands in the tree: at its replica, beside the clients, or among the services of all."""
    role = role_of(name)
    return f"replica {replica_of(name)}" if role in _OF_REPLICAS else _BRANCHES.get(role, "services")


def _actor(child: ChildStatus, *, sees_all: bool) -> ActorRow:
    """`sees_all` False: without the process id, and without reasons, which may tell of the requests of others."""
    return ActorRow(
        name=child.name,
        branch=branch_of(child.name),
        life=child.incarnation,
        state=child.state,
        restarts=child.restarts,
        restarts_left=child.restarts_left,
        uptime_s=round(child.uptime_s, 1),
        beat_age_s=round(child.beat_age_s, 2),
        memory_bytes=child.memory_bytes,
        steps=child.steps,
        phase=_shown(child.phase, sees_all),
        pid=child.pid if sees_all else 0,
        has_spare=child.has_spare,
        last_exit=_shown(child.last_exit, sees_all),
        last_exit_age_s=round(child.last_exit_age_s, 1),
        retired=_shown(child.retired, sees_all),
        cordon=child.cordon,
    )


def _shown(text: str, sees_all: bool) -> str:
    return text if sees_all else text.partition(" (")[0].partition(":")[0]


def _requests(audience: Audience, found: RequestRows) -> tuple[list[RequestRow], int]:
    """The requests that an audience sees, at most `MOST_ROWS`, and how many it would see without that bound."""
    if audience.tenant is None:
        return found.rows[:MOST_ROWS], sum(found.n_by_tenant.values())
    rows = [row for row in found.rows if row.tenant == audience.tenant]
    return rows[:MOST_ROWS], found.n_by_tenant.get(audience.tenant, 0)


def _tenants(audience: Audience, found: Collected) -> list[TenantLine]:
    accounts = next((one.statistics for one in found.report.children if role_of(one.name) == "accounts"), {})
    rows = tenant_rows(found.families(), accounts, found.requests.n_by_tenant)
    return [row for row in rows if audience.tenant in (None, row.tenant)]


def _sequences(found: Collected) -> Sequences:
    at_gateways = [sequences_in(families) for name, families in found.by_actor() if role_of(name) == "gateway"]
    at_schedulers = [one.statistics for one in found.report.children if role_of(one.name) == "scheduler"]
    running, waiting = (int(sum(one.get(key, 0.0) for one in at_schedulers)) for key in ("running", "waiting"))
    return Sequences(sum(one[0] for one in at_gateways), running, waiting + sum(one[1] for one in at_gateways))
