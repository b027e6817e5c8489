"""Takes over the requests in the journal of an earlier incarnation: keeps finished ones, continues unfinished ones."""

from __future__ import annotations

from collections.abc import Set

import structlog

from actors.gateway.journal.journal import Journal
from actors.gateway.journal.records import Recovered, encode_record, request_record, run_record
from actors.gateway.journal.restore import restore
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.models.served_models import ServedModels
from actors.gateway.requests.request import Request
from messages.log_file.request_names import names_of


def take_over_all(
    manager: RequestManager,
    journal: Journal,
    recovered: list[Recovered],
    models: ServedModels,
    now_s: float,
    incarnation: int,
    connected: Set[str] = frozenset(),
) -> int:
    """Hand every request of the journal to the request manager of this `incarnation`; returns how many of them go on.

    Unfinished requests that are resumable, or in `connected`, are submitted to schedulers again, unless another model is served
    now. All other unfinished ones are cancelled: their connections ended with the previous incarnation. `connected`: ids of
    requests whose connections outlived it. Finished ones are not decoded. Requests of adopted journals are recorded here.
    """
    resumed, n_other_numerics = list[str](), 0
    for answer in journal.finished:
        manager.finished.keep_record(answer, now_s)
        if answer.number in journal.adopted:
            journal.answer(answer.number, encode_record(answer.aged()))
    journal.finished = []
    for entry in recovered:
        request = _restored(entry, journal, models, now_s)
        if request is None:
            continue
        if entry.number in journal.adopted:
            journal.request(entry.number, encode_record(request_record(request, entry.identity, now_s)))
        if request.is_over:
            if entry.has_lost_order:
                request.begin_run(now_s, incarnation, is_marked=True)
            request.ended_s = now_s
            manager.finished.keep(request, now_s)
        elif manager.take_over(request, entry.identity, request.spec.request in connected):
            resumed.append(request.spec.request)
            _begin_run(request, entry, journal, now_s, incarnation)
            n_other_numerics += entry.identity.numerics != models.at(entry.spec.model).identity.numerics
    if n_other_numerics:
        _warn_of_numerics(n_other_numerics, models)
    journal.adopt_all()
    return _said(resumed)


def _said(resumed: list[str]) -> int:
    """Write into the log which requests go on; returns how many."""
    if resumed:
        structlog.get_logger().info("requests of the journal go on", requests=names_of(resumed))
    return len(resumed)


def _warn_of_numerics(n_requests: int, models: ServedModels) -> None:
    text, now = "requests go on with other ranks, devices, kernels or dtype", models.main.identity.numerics
    structlog.get_logger().warning(text, requests=n_requests, numerics=now)


def _restored(entry: Recovered, journal: Journal, models: ServedModels, now_s: float) -> Request | None:
    """The request; None, and the journal forgets it, if its record contradicts itself."""
    try:
        return restore(entry, models.accepted(entry.spec.model, entry.identity).text, now_s)
    except (ValueError, IndexError) as error:
        log = structlog.get_logger()
        log.error("journal: request skipped, its record is damaged", error=str(error), **entry.spec.log_fields)
        journal.delete(entry.number)
        return None


def _begin_run(request: Request, entry: Recovered, journal: Journal, now_s: float, incarnation: int) -> None:
    """Begin a new run of a request with several sequences.

    The last process may have shown tokens in an order that it could not record, and new events must not repeat their ids. After
    damaged bytes the request is recorded as a whole, so that the next process does not begin a run there as well.
    """
    if len(request.sequences) > 1 and request.spec.is_resumable:
        request.begin_run(now_s, incarnation, is_marked=entry.has_lost_order)
        if entry.has_lost_order:
            journal.request(entry.number, encode_record(request_record(request, entry.identity, now_s)))
        else:
            journal.step(run_record(request), lambda: None)
