"""A new gateway takes over what its predecessor had promised: finished requests are kept, unfinished ones go on."""

from __future__ import annotations

import structlog

from actors.gateway.dispatch.request_desk import RequestDesk
from actors.gateway.journal.records import Recovered
from actors.gateway.journal.restore import restore
from actors.gateway.text.tokenizer import TextModel


def take_over_all(desk: RequestDesk, recovered: list[Recovered], model: TextModel, now_s: float) -> int:
    """Give a new gateway what its predecessor had promised; returns how many requests go on.

    Requests whose client can come back are brought to schedulers again; the connections of all others died with the
    predecessor, so they end as cancelled.
    """
    log, resumed = structlog.get_logger(), 0
    for entry in recovered:
        try:
            request = restore(entry, model, now_s)
        except (ValueError, IndexError) as error:
            log.error("journal: request left out", number=entry.number, error=str(error))
            desk.drop(entry.number)
            continue
        if request.is_over:
            desk.settle(request, entry.ended_s)
        elif desk.take_over(request):
            resumed += 1
    return resumed
