"""Collects what the page shows: the supervisor's report, this gateway's own metrics, and the requests of all gateways."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from prometheus_client import CollectorRegistry

from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.other_gateways.questions import fetched
from actors.gateway.other_gateways.unix_http import LOST, post
from actors.gateway.page.gateway_counts import Counted, counted_in
from actors.gateway.page.pace import Incarnation, RecentPace
from actors.gateway.page.requests import Listing, RequestRows, RowsWanted, merged
from actors.gateway.page.snapshot import Collected, SupervisorRow
from actors.gateway.requests.refusals import Refusal
from actors.gateway.tree_status import TreeStatus
from messages.ids import role_of
from messages.lifecycle.lifecycle import MetricFamily
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.lifecycle.tree import StatusReport, TreeState
from messages.metrics import take_snapshot
from messages.release import release_version

ROWS_PATH = "/forwarded/live/requests"
_OTHERS_S = 0.8  # longest wait for another gateway, which may be starting; then its requests are not in this collection
_NOTHING = RequestRows([], {})


@dataclass(frozen=True)
class OwnGateway:
    """What the page needs of its gateway. `refresh` brings the gauges of `registry` up to date."""

    spawn_spec: SpawnSpec
    tree: TreeStatus
    registry: CollectorRegistry
    refresh: Callable[[], object]


class Collector:
    """Makes one `Collected` when it is asked to. Nothing of it runs between two of them."""

    def __init__(self, own: OwnGateway, manager: RequestManager, other_sockets: Sequence[str], *, has_keys: bool) -> None:
        self._own, self._manager, self._other_sockets, self._has_keys = own, manager, other_sockets, has_keys
        self._name = own.spawn_spec.name
        self._pace, self._began_s = RecentPace(), asyncio.get_running_loop().time()
        self._n_reports, self._heard_s = 0, self._began_s  # reports of the supervisor, and when this last was another number
        names = manager.models
        self._listing = Listing(
            self._name,
            lambda caller: manager.access_log.tenant_of(caller),
            lambda request: names.at(request.spec.model).name,
            hides_ids=not has_keys,
        )

    async def collect(self, wanted: RowsWanted) -> Collected:
        """Ask the supervisor and the other gateways, for about a second at most, and put everything together."""
        call = post(ROWS_PATH, msgspec.json.encode(wanted))
        asked = asyncio.gather(*(_rows_of(socket, call) for socket in self._other_sockets))
        report, others = await asyncio.gather(self._own.tree.wait_report(), asked)
        self._own.refresh()
        families = take_snapshot(self._own.registry)
        report = report or StatusReport(state=TreeState.STARTING, uptime_s=0.0, model="", url="", children=[])
        self._pace.note(asyncio.get_running_loop().time(), self._counted(report, families))
        return Collected(
            time_s=round(time.time(), 3),
            version=release_version(),
            gateway=self._name,
            report=report,
            supervisor=self._supervisor(report),
            own_families=families,
            pace=self._pace.figures(),
            requests=merged([self.rows(wanted), *others]),
            has_tenants=self._has_keys,
        )

    def rows(self, wanted: RowsWanted) -> RequestRows:
        """The requests of this gateway that are wanted."""
        return self._listing.rows(self._manager.unfinished.all, asyncio.get_running_loop().time(), wanted)

    def _counted(self, report: StatusReport, own: list[MetricFamily]) -> dict[Incarnation, Counted | None]:
        """What each gateway has counted: this one until now, the others until their last heartbeats."""
        now_s = asyncio.get_running_loop().time()
        counted = {
            (one.name, one.incarnation): counted_in(one.metrics, now_s - one.uptime_s)
            for one in report.children
            if role_of(one.name) == "gateway" and one.name != self._name
        }
        return {**counted, (self._name, self._own.spawn_spec.incarnation): counted_in(own, self._began_s)}

    def _supervisor(self, report: StatusReport) -> SupervisorRow:
        n_reports, now_s = self._own.tree.n_reports, asyncio.get_running_loop().time()
        is_heard = n_reports != self._n_reports
        if is_heard:
            self._n_reports, self._heard_s = n_reports, now_s
        return SupervisorRow(is_heard, round(now_s - self._heard_s, 1), report.supervisor_pid, report.parent_deaths)


async def _rows_of(socket: str, call: bytes) -> RequestRows:
    """The requests of another gateway; none while it does not answer."""
    try:
        async with asyncio.timeout(_OTHERS_S):
            answer = await fetched(socket, call)
        return msgspec.json.decode(answer.body, type=RequestRows)
    except (TimeoutError, Refusal, msgspec.DecodeError, *LOST):
        return _NOTHING
