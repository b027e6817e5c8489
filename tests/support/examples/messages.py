"""One example of each message of both vocabularies: the input of the golden files."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import numpy as np

from messages import drafts, embedding, public, steps
from messages.generation.grammar import Grammar, GrammarKind
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs
from messages.generation.sampling import Sampling
from messages.generation.sequences import Ack, Cancel, Ending, Holding, Refused, Submit, Suspicion, Taken, Tokens, Work
from messages.generation.terms import RankTerms, Terms
from messages.lifecycle import lifecycle
from messages.lifecycle.tree import (
    ChildState,
    ChildStatus,
    CommandTaken,
    DrainWanted,
    OrderTaken,
    RestartWanted,
    ServeWanted,
    StatusReport,
    StatusWanted,
    StopWanted,
    TreeState,
)
from messages.public import ClientMessage, GatewayMessage
from messages.routes import INTERNAL_KINDS
from messages.wire.arrays import float32s, int32s, int64s
from messages.wire.codec import Codec
from messages.wire.message import Message
from tests.support.examples.allowances import ALLOWANCES
from tests.support.examples.cache_messages import CACHES
from tests.support.examples.replica_messages import REPLICA_MESSAGES

_PEER = lifecycle.Peer(name="scheduler/0", incarnation=2, endpoint="ipc:///run/t/scheduler-0.2")
_FAMILY = lifecycle.MetricFamily(
    name="steps",
    documentation="Steps",
    type="counter",
    samples=[lifecycle.MetricSample(suffix="_total", labels={"kind": "decode"}, value=3.0)],
)
_CHILD = ChildStatus(
    name="worker/0.1",
    incarnation=3,
    pid=42,
    state=ChildState.READY,
    phase="",
    restarts=2,
    uptime_s=1.5,
    beat_age_s=0.25,
    steps=9,
    busy_s=0.0,
    statistics={"rows": 4.0},
    metrics=[_FAMILY],
    memory_bytes=1_000_000,
    restarts_left=298,
    has_spare=True,
    last_exit="killed by SIGKILL (frozen: no beat for 5 s)",
    last_exit_age_s=1.5,
    retired="worker/0.1: died 5 times in a row before it was ready",
)
_WORK = Work(queue_s=0.25, prefill_s=0.5, decode_s=1.5, n_drafted=4, n_accepted=3)
_GRAMMAR = Grammar(kind=GrammarKind.LLGUIDANCE, text="{}")
_SAMPLING = Sampling(temperature=0.5, top_p=0.9, top_k=40, min_p=0.05, seed=7, repetition_penalty=1.25, logprobs=2)


def _prompt_logprobs(owner: int) -> PromptLogprobs:
    logprobs = TokenLogprobs(chosen=float32s([-0.5]), width=1, top_ids=int32s([3]), top=float32s([-0.25]))
    return PromptLogprobs(owner=owner, first=0, logprobs=logprobs, ranks=int32s([2]))


INTERNAL: tuple[Message, ...] = (
    lifecycle.Hello(
        pid=42, endpoint="ipc:///run/t/gateway-0.1", state=lifecycle.Reached.READY, details={"url": "http://127.0.0.1:8000"}
    ),
    lifecycle.Adopt(incarnation=2, pid=41),
    lifecycle.Welcome(peers=[_PEER], deaths=[lifecycle.PeerDown(name="worker/0.1", incarnation=1, cause="crashed")]),
    lifecycle.Loading(phase="weights", fraction=0.5),
    lifecycle.Ready(details={"url": "http://127.0.0.1:8000"}),
    lifecycle.PeerUp(peer=_PEER),
    lifecycle.PeerDown(name="scheduler/0", incarnation=2, cause="crashed"),
    lifecycle.RankEnding(name="worker/0.1", incarnation=2, cause="faulted"),
    lifecycle.Progress(steps=10, busy_s=0.5, statistics={"running": 2.0}, metrics=[_FAMILY]),
    lifecycle.Drain(deadline_s=30.0),
    lifecycle.Drained(),
    lifecycle.Stop(),
    lifecycle.Stopped(),
    lifecycle.Fault(doing="Result", reason="ValueError: step", traceback="Traceback ...", is_final=True),
    StatusWanted(reply_to="ipc:///run/t/operator-9", metrics=True),
    StatusReport(
        layout="2 replicas x tp 1 on CPU cores, float32",
        state=TreeState.SERVING,
        uptime_s=2.5,
        model="smollm2",
        url="http://127.0.0.1:8000",
        children=[_CHILD],
        supervisor_pid=4123,
        parent_pid=4120,
        parent_deaths=1,
        keeps_spares=False,
    ),
    DrainWanted(reply_to="ipc:///run/t/operator-9", deadline_s=30.0, then_stop=True),
    ServeWanted(reply_to="ipc:///run/t/operator-8"),
    StopWanted(reply_to="ipc:///run/t/operator-9"),
    RestartWanted(reply_to="ipc:///run/t/operator-7", server=b"{}"),
    CommandTaken(state=TreeState.DRAINING),
    OrderTaken(state=TreeState.DRAINING),
    Submit(
        attempt=5,
        request="req-1",
        tokens=int32s([1, 2, 3]),
        n_prompt=2,
        sampling=_SAMPLING,
        terms=Terms(max_tokens=16, stop_tokens=[2], priority=-1, caller=b"caller-1", grammar=_GRAMMAR, logit_bias={"5": -1.5}),
        suspicion=Suspicion(deaths=2, certain=1, reach=5, passed=3),
        x_request_id="client-1",
    ),
    *REPLICA_MESSAGES,
    Taken(attempt=5),
    Refused(attempt=5, code="deadline", detail="ttft_ms: expected more, got 9 ms", retryable=False, retry_after_s=2.0),
    Tokens(
        number=1,
        attempts=int64s([5, 6]),
        firsts=int32s([0, 7]),
        counts=int32s([1, 2]),
        cached=int32s([0, 16]),
        ids=int32s([11, 12, 13]),
        endings=[Ending(attempt=6, reason="stop", n_cached=16, work=_WORK)],
        logprobs=TokenLogprobs(
            chosen=float32s([-0.5, -0.25, -1.0]),
            width=1,
            top_ids=int32s([11, 12, 13]),
            top=float32s([-0.5, -0.25, -1.0]),
        ),
        prompts=[_prompt_logprobs(owner=6)],
    ),
    Holding(number=7, newest=3, attempts=int64s([2, 3]), told=int32s([40, 0]), steps=90, made_s=12.5),
    Ack(up_to=1),
    Cancel(attempt=5, why="client_left"),
    steps.Reset(epoch=2, memory_generation=5, is_memory_suspect=True),
    steps.Idle(),
    steps.PrepareGrammar(epoch=2, number=3, text="{}"),
    steps.GrammarPrepared(epoch=2, number=3),
    steps.Capacity(
        epoch=2,
        memory_generation=5,
        engine=steps.EngineCapacity(
            n_pages=64,
            n_slots=8,
            max_length=512,
            max_step_tokens=256,
            max_lease_steps=1,
            vocabulary=100,
            device="cpu",
            step_times=[steps.StepTime(rows=2, tokens=80, context=40, took_s=0.125)],
            copies_pages=True,
            page_bytes=4096,
            prepares_grammars=True,
        ),
    ),
    steps.Plan(
        epoch=2,
        step=9,
        n_steps=1,
        new=[
            steps.NewSequence(
                slot=1,
                n_tokens=3,
                n_prompt=3,
                sampling=_SAMPLING,
                terms=RankTerms(min_tokens=2, stop_tokens=[2]),
                grammar="{}",
                end_tokens=[2],
                rules=steps.TokenRules(biased=[5], biases=[-1.5], allowed=[5, 6, 44], bad=[[5, 6]]),
                prompt_logprobs=1,
                request="req-1",
            )
        ],
        new_tokens=int32s([1, 2, 3]),
        page_slots=int32s([1]),
        page_indices=int32s([0]),
        page_ids=int32s([7]),
        row_slots=int32s([0, 1]),
        row_starts=int32s([20, 0]),
        row_counts=int32s([2, 3]),
        row_samples=int32s([1, 1]),
        draft_counts=int32s([1, 0]),
        draft_ids=int32s([44]),
        expected_s=0.25,
        copies=steps.PageCopies(sources=int32s([3]), targets=int32s([7]), tokens=int32s([8])),
    ),
    steps.Result(
        epoch=2,
        step=9,
        slots=int32s([0, 1]),
        counts=int32s([2, 1]),
        ids=int32s([44, 5, 6]),
        compute_s=0.5,
        wait_s=-0.002,
        grammars=steps.GrammarReport(
            slots=int32s([0]),
            starts=int32s([12]),
            counts=int32s([2]),
            ids=int32s([7, 8]),
            failures=[steps.GrammarFailure(slot=1, reason="more items than can be followed")],
            rests=[steps.GrammarRest(slot=2, wait_s=0.25)],
        ),
        prompts=[_prompt_logprobs(owner=1)],
    ),
    steps.StepFailed(epoch=2, step=9, reason="page_ids: expected less than 64, got 64", suspects=int32s([1])),
    drafts.Tails(
        sequences=int64s([3, 4]),
        starts=int32s([0, 0]),
        counts=int32s([2, -1]),
        ids=int32s([8, 9]),
        drafted=int32s([4, 0]),
        accepted=int32s([3, 0]),
    ),
    drafts.Drafts(sequences=int64s([3]), starts=int32s([2]), counts=int32s([2]), ids=int32s([8, 9])),
    embedding.Embed(group=5, counts=int32s([2, 1]), ids=int32s([101, 102, 7])),
    embedding.Embedded(group=5, vectors=float32s([0.5, 0.25, 1.0, 0.0])),
    *CACHES,
    *ALLOWANCES,
)

_KEY = "tg-0123456789ab-" + "x" * 43
_TRACEPARENT = f"00-{16 * '4b'}-{8 * 'f0'}-01"
PUBLIC: tuple[Message, ...] = (
    public.AnswersWanted(
        request="req-1",
        api="completion",
        body=b'{"prompt":[],"max_tokens":8}',
        tokens=int32s([3, 4]),
        have=[3],
        is_repeated=True,
        api_key=_KEY,
        traceparent=_TRACEPARENT,
        tracestate="a=b",
    ),
    public.Generate(
        request="req-1",
        sampling=_SAMPLING,
        terms=Terms(max_tokens=8, stop=["\n"], bad_words=["no"]),
        prompt="Hello",
        have=3,
        api_key=_KEY,
        traceparent=_TRACEPARENT,
        tracestate="a=b",
    ),
    public.Accepted(request="req-1", n_prompt=4, degraded="drafts=off, n=2", queue_wait_ms=1500),
    public.Chunk(
        request="req-1",
        first=0,
        ids=int32s([5]),
        text=" you",
        prompt_logprobs=_prompt_logprobs(owner=0),
        parts=[public.AnswerPart(channel=public.Channel.CALL, text="get_time", call="call_1")],
    ),
    public.Finished(request="req-1", reason="length", n_prompt=4, n_generated=8, n_cached=0),
    public.Failed(request="req-1", code="invalid", field="max_tokens", detail="expected at least 1, got 0"),
    public.Received(request="req-1", up_to=4),
    public.CancelRequest(request="req-1"),
    public.ModelsWanted(call="c1", api_key=_KEY),
    public.CacheResetWanted(call="c4", body=b'{"older_than_s": 60}', operator_key="key", api_key=_KEY),
    public.CachesReset(call="c4", pages=12, answers=3),
    public.Models(call="c1", names=["smollm2"], max_length=8192),
    public.EmbeddingsWanted(
        call="c3", counts=int32s([2, 1]), ids=int32s([101, 102, 7]), dimensions=2, prompt_name="", api_key=_KEY
    ),
    public.TextVectors(call="c3", model="minilm", n_texts=1, vectors=float32s([0.5, 0.25]), n_tokens=3),
    public.StatsWanted(call="c2", api_key=_KEY),
    public.Stats(call="c2", summary="{}"),
    public.Alive(incarnation=2),
)

PUBLIC_KINDS = (*get_args(ClientMessage), *get_args(GatewayMessage))


def codec_of(message: Message) -> Codec[Message]:
    """The codec of the vocabulary that this message belongs to."""
    return Codec(INTERNAL_KINDS if type(message) in INTERNAL_KINDS else PUBLIC_KINDS)


def same(one: Any, other: Any) -> bool:
    """True if two messages, or values of them, are equal, arrays included."""
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, msgspec.Struct):
        return type(one) is type(other) and all(same(getattr(one, n), getattr(other, n)) for n in one.__struct_fields__)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
