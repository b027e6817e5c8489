"""Bodies in messages of ZeroMQ clients that cannot be served: the refusal names the field."""

from __future__ import annotations

from typing import Any

from messages import public
from messages.wire.arrays import int32s
from tests.support.gateway.zmq_clients import zmq_rig


async def test_a_body_that_no_client_of_ours_sends_is_refused_by_name() -> None:
    wrong: list[tuple[str, str, dict[str, Any]]] = [
        ("version", "x", {"version": 4}),
        ("unheard_of", "x", {"body": b'{"prompt":"x","unheard_of":1}'}),
        ("best_of", "x", {"body": b'{"prompt":"x","n":2,"best_of":1}'}),
        ("tokens", "x", {"tokens": [1]}),
        ("prompt", "x", {"body": b"{}"}),
        ("", "x", {"body": b"["}),
        ("prompt", "x", {"body": b'{"prompt":[' + b"1," * 100_000 + b"1]}"}),
        ("", "x", {"body": b'{"prompt":"x","user":[' + b"1," * 100_000 + b"1]}"}),
        ("tokens", "x", {"api": "chat", "body": b'{"messages":[]}', "tokens": [1]}),
        ("request", "", {}),
    ]
    async with zmq_rig() as (_, (connection,)):
        for field, request, fields in wrong:
            fields = {**fields, **({"tokens": _ids(fields["tokens"])} if "tokens" in fields else {})}
            await connection.send(_answers_wanted(request, **fields))
            failed = await connection.receive()
            assert isinstance(failed, public.Failed)
            assert (failed.code in ("invalid", "too_large", "too_long"), failed.field) == (True, field)


def _ids(values: list[int]) -> Any:
    return int32s(values)


def _answers_wanted(request: str, **fields: Any) -> public.AnswersWanted:
    return public.AnswersWanted(**{"request": request, "api": "completion", "body": b'{"prompt":"x"}', **fields})
