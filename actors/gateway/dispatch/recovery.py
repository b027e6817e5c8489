"""Takes over the requests in the journal of an earlier incarnation: keeps finished ones, continues unfinished ones."""

from __future__ import annotations

import structlog

from actors.gateway.dispatch.request_desk import RequestDesk
from actors.gateway.journal.records import Recovered
from actors.gateway.journal.restore import restore
from actors.gateway.text.tokenizer import TextModel


def take_over_all(desk: RequestDesk, recovered: list[Recovered], model: TextModel, now_s: float) -> int:
    """Hand every recovered request to the desk; returns how many of them go on.

    Unfinished resumable requests are submitted to schedulers again. All other unfinished ones are cancelled: their connections
    ended with the previous incarnation.
    """
    log, resumed = structlog.get_logger(), 0
    for entry in recovered:
        try:
            request = restore(entry, model, now_s)
        except (ValueError, IndexError) as error:
            log.error("journal: request skipped, its record is damaged", number=entry.number, error=str(error))
            desk.discard(entry.number)
            continue
        if request.is_over:
            desk.keep_finished(request, entry.ended_s)
        elif desk.take_over(request):
            resumed += 1
    return resumed
