"""deadline_s: a request that is not finished by then ends with the code "deadline", in every API."""

from __future__ import annotations

from messages import public
from messages.client import AsyncClient
from messages.generation.terms import Terms
from messages.wire.arrays import int32s
from tests.support.gateway.zmq_clients import GREEDY, zmq_rig


async def test_a_request_ends_at_its_own_deadline_in_every_api() -> None:
    async with zmq_rig() as (r, (connection,)), r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        for path, field in (("/v1/completions", "prompt"), ("/v1/generate", "tokens")):
            answer = await http.post(path, json={field: [1, 2], "deadline_s": 0.05})
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline")
            assert "0.05 s" in answer.json()["error"]["message"]
        terms = Terms(deadline_s=0.05)
        await connection.send(public.Generate(request="late", sampling=GREEDY, tokens=int32s([1, 2]), terms=terms))
        assert isinstance(await connection.receive(), public.Accepted)
        ended = await connection.receive()
        assert isinstance(ended, public.Finished)
        assert (ended.reason, ended.code) == ("failed", "deadline")
        await r.cluster.wait_until(lambda: not scheduler.running)


async def test_the_scheduler_knows_the_deadline_of_a_request() -> None:
    async with zmq_rig() as (r, _), r.http() as http, AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler()
        await client.generate([1, 2], max_tokens=2, deadline_s=500.0)
        await http.post("/v1/completions", json={"prompt": [1, 2], "max_tokens": 2, "deadline_s": 400.0})
        assert [submit.terms.deadline_s for submit in scheduler.submits] == [500.0, 400.0]
        refused = await http.post("/v1/completions", json={"prompt": [1, 2], "deadline_s": 0})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "deadline_s")
