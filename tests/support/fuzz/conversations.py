"""Legal conversations of ZeroMQ clients with the public socket of a gateway, in each of which one message is damaged."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import msgspec
import zmq

from messages import public
from messages.errors import WireError
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from messages.wire.arrays import EMPTY_I32, int32s
from messages.wire.codec import Codec
from messages.wire.message import Message
from tests.support.fuzz.mutations import mutated_once

_AT_ONCE = 25  # conversations of one client
_ANSWER_MS = 60_000
_CODEC: Codec[Message] = Codec((*public.ClientMessage.__args__, *public.GatewayMessage.__args__))


@dataclass(frozen=True)
class Conversation:
    """The frames of the messages of one client about one request. `is_owed`: the request ends with a message to the client."""

    request: str
    messages: list[list[bytes]]
    is_owed: bool


def conversation(chance: random.Random) -> Conversation:
    """Ask, confirm, ask something else, confirm the end or cancel; one of these messages is damaged in one frame, or has frames
    too many or too few."""
    request, n = f"fuzz-{chance.getrandbits(64):x}", chance.randrange(1, 5)
    sampling = Sampling(temperature=chance.choice((0.0, 1.0)), seed=chance.getrandbits(32), logprobs=chance.choice((-1, -1, 2)))
    text, tokens = ("Hi", EMPTY_I32) if chance.random() < 0.3 else (None, int32s([chance.randrange(100) for _ in range(4)]))
    body = msgspec.json.encode({"prompt": text or [], "max_tokens": n, "n": chance.choice((1, 1, 2)), "seed": sampling.seed})
    messages: list[Message] = [
        chance.choice(
            (
                public.AnswersWanted(request=request, api="completion", body=body, tokens=tokens),
                public.Generate(request=request, sampling=sampling, terms=Terms(max_tokens=n), prompt=text, tokens=tokens),
            )
        ),
        public.Received(request=request, up_to=1),
        chance.choice((public.ModelsWanted(call=request), public.Received(request=request, up_to=n))),
        chance.choice((public.CancelRequest(request=request), public.Received(request=request, up_to=n + 1))),
    ]
    frames = [[*_CODEC.encode(message)] for message in messages]
    damaged = chance.randrange(len(frames))
    if chance.random() < 0.05:
        frames[damaged] = frames[damaged] * 2 if chance.random() < 0.5 else frames[damaged][:1]
    else:
        filled = [place for place, frame in enumerate(frames[damaged]) if frame]
        place = chance.choice(filled)
        frames[damaged][place] = mutated_once(chance, frames[damaged][place])
    return Conversation(request, frames, is_owed=damaged != 0 and not _says_that_it_left(frames[damaged]))


def _says_that_it_left(frames: list[bytes]) -> bool:
    """True for the message of a client that has left. It is legal, and nothing is sent to this client any more."""
    try:
        message = _CODEC.decode(frames[0], frames[1] if len(frames) > 1 else b"")
    except WireError:
        return False
    return isinstance(message, public.CancelRequest) and message.has_left


def fuzz_zeromq(chance: random.Random, endpoint: str, n_damaged: int) -> Counter[str]:
    """So many conversations, each with one damaged message. Every request that was asked rightly ends, unless its client says
    that it left. Returns how many messages of each kind came back."""
    heard: Counter[str] = Counter()
    context = zmq.Context()
    try:
        for begin in range(0, n_damaged, _AT_ONCE):
            talks = [conversation(chance) for _ in range(min(_AT_ONCE, n_damaged - begin))]
            client = context.socket(zmq.DEALER)
            client.connect(endpoint)
            heard += _talk(client, talks)
            client.close(linger=0)
    finally:
        context.destroy(linger=0)
    return heard


def _talk(client: zmq.Socket[bytes], talks: list[Conversation]) -> Counter[str]:
    heard: Counter[str] = Counter()
    open_requests = {talk.request for talk in talks if talk.is_owed}
    for turn in range(max(len(talk.messages) for talk in talks)):
        for talk in talks:
            client.send_multipart(talk.messages[turn])
    while open_requests:
        assert client.poll(_ANSWER_MS), f"no ending of {open_requests}"
        body, *arrays = client.recv_multipart()
        message = _CODEC.decode(body, arrays[0] if arrays else b"")
        heard[type(message).__name__] += 1
        if isinstance(message, public.Finished | public.Failed):
            open_requests.discard(message.request)
    return heard
