"""Every text gets its vector: embedders die, are full, or kill themselves on one text; calls take turns."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from actors.gateway.dispatch.post import Post, Timer
from actors.gateway.embeddings.dispatcher import EmbeddingDispatcher
from actors.gateway.requests.refusals import Refusal
from messages.embedding import Embed
from messages.errors import MailboxFull
from messages.lifecycle.lifecycle import Cause
from messages.wire.arrays import int32s
from messages.wire.message import NO_TRACE, Message
from tests.support.embedding.embedders import answer_to, formula

pytestmark = pytest.mark.slow


class FakePost(Post):
    """Records what is sent to the embedder. `later` keeps its callback."""

    def __init__(self) -> None:
        self.sent: list[Embed] = []
        self.callbacks: list[Callable[[], None]] = []
        self.lives, self.is_full = True, False

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        if self.is_full:
            raise MailboxFull(name)
        assert isinstance(message, Embed)
        self.sent.append(message)

    def living(self, role: str) -> list[str]:
        return [f"{role}/0"] if self.lives else []

    def incarnation_of(self, name: str) -> int:
        return 1

    def now_s(self) -> float:
        return 0.0

    def wall_s(self) -> float:
        return 0.0

    def later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.callbacks.append(callback)
        return asyncio.get_running_loop().call_later(3600.0, callback)

    def take(self) -> list[Embed]:
        sent, self.sent = self.sent, []
        return sent


def texts_of(*lengths: int) -> list[np.ndarray]:
    return [np.full(length, length, np.int32) for length in lengths]


def begin(dispatcher: EmbeddingDispatcher, *lengths: int) -> asyncio.Task[np.ndarray]:
    return asyncio.create_task(dispatcher.embed(texts_of(*lengths)))


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def expected(*lengths: int) -> np.ndarray:
    return np.stack([formula(ids.tolist()) for ids in texts_of(*lengths)])


def answer_all(post: FakePost, dispatcher: EmbeddingDispatcher, *, but: int = -1) -> None:
    """Answer until nothing more comes, except texts of the length `but`."""
    while answered := [message for message in post.sent if but not in message.ids]:
        post.sent = [message for message in post.sent if all(message is not one for one in answered)]
        for message in answered:
            dispatcher.on_embedded(answer_to(message))


async def test_vectors_come_back_in_the_order_of_the_texts() -> None:
    post = FakePost()
    dispatcher = EmbeddingDispatcher(post)
    lengths = [300 - 7 * (index % 40) for index in range(100)]
    call = begin(dispatcher, *lengths)
    await turn()
    answer_all(post, dispatcher)
    assert np.array_equal(await call, expected(*lengths))


async def test_texts_wait_for_an_embedder_and_are_sent_again_when_it_dies() -> None:
    post = FakePost()
    post.lives = False
    dispatcher = EmbeddingDispatcher(post)
    call = begin(dispatcher, 3, 5)
    await turn()
    assert post.take() == []
    post.lives = True
    dispatcher.embedder_up()
    (first,) = post.take()
    again = first
    for _ in range(100):  # deaths from outside make no text suspect
        dispatcher.embedder_down("killed")
        dispatcher.embedder_up()
        (again,) = post.take()
        assert again.ids.tolist() == first.ids.tolist()
    dispatcher.on_embedded(answer_to(first))  # from a dead embedder: nobody waits for this number
    assert not call.done()
    dispatcher.on_embedded(answer_to(again))
    assert np.array_equal(await call, expected(3, 5))
    assert dispatcher.n_resent == 100


async def test_a_text_that_kills_embedders_fails_alone() -> None:
    post = FakePost()
    dispatcher = EmbeddingDispatcher(post)
    calls = [begin(dispatcher, length) for length in (3, 13, 5)]
    await turn()
    deaths = 0
    while not calls[1].done():
        assert deaths < 10
        await turn()
        if any(13 in message.ids for message in post.sent):
            deaths += 1
            post.take()
            dispatcher.embedder_down("crashed")
            dispatcher.embedder_up()
        else:
            answer_all(post, dispatcher, but=13)
            await turn()
    with pytest.raises(Refusal, match="died again and again"):
        await calls[1]
    await turn()
    answer_all(post, dispatcher)
    assert np.array_equal(np.concatenate([await calls[0], await calls[2]]), expected(3, 5))


@pytest.mark.parametrize("cause", ["hung", "crashed", "faulted"])
async def test_no_text_fails_while_the_embedder_cannot_compute_anything(cause: Cause) -> None:
    """A device that hangs on every batch is not the fault of a text; a canary of the same size shows that."""
    post = FakePost()
    dispatcher = EmbeddingDispatcher(post)
    calls = [begin(dispatcher, length) for length in (3, 13, 5)]
    await turn()
    n_canaries = 0
    for _ in range(40):
        n_canaries += any(not message.ids.any() for message in post.take())
        dispatcher.embedder_down(cause)
        dispatcher.embedder_up()
    assert n_canaries >= 10
    answer_all(post, dispatcher)
    await turn()
    assert np.array_equal(np.concatenate([await call for call in calls]), expected(3, 13, 5))


async def test_a_suspect_is_sent_after_a_canary_of_its_size() -> None:
    post = FakePost()
    dispatcher = EmbeddingDispatcher(post)
    call = begin(dispatcher, 3, 13)
    await turn()
    for _ in range(2):
        assert post.take()[0].ids.any()
        dispatcher.embedder_down("hung")
        dispatcher.embedder_up()
    for cause in ("killed", "killed"):  # from outside: it says nothing about the canary
        (canary,) = post.take()
        assert (canary.counts.tolist(), canary.ids.any()) == ([3, 13], False)
        dispatcher.embedder_down(cause)
        dispatcher.embedder_up()
    (canary,) = post.take()
    assert not canary.ids.any()
    dispatcher.on_embedded(answer_to(canary))
    (suspect,) = post.take()
    dispatcher.on_embedded(answer_to(suspect))
    assert np.array_equal(await call, expected(3, 13))


async def test_a_full_mailbox_is_tried_again() -> None:
    post = FakePost()
    post.is_full = True
    dispatcher = EmbeddingDispatcher(post)
    call = begin(dispatcher, 4)
    await turn()
    (retry,) = post.callbacks
    post.is_full = False
    retry()
    answer_all(post, dispatcher)
    assert np.array_equal(await call, expected(4))


async def test_a_short_call_does_not_wait_for_a_long_one() -> None:
    post = FakePost()
    dispatcher = EmbeddingDispatcher(post)
    long = begin(dispatcher, *[500] * 100)
    await turn()
    short = begin(dispatcher, 2)
    await turn()
    while not short.done():
        dispatcher.on_embedded(answer_to(post.sent.pop(0)))
        await turn()
    assert not long.done()
    assert len(post.sent) > 0
    answer_all(post, dispatcher)
    assert len(await long) == 100


async def test_what_a_client_does_not_want_any_more_is_not_sent() -> None:
    post = FakePost()
    dispatcher = EmbeddingDispatcher(post)
    call = begin(dispatcher, *[900] * 20)
    await turn()
    call.cancel()
    await turn()
    n_sent = len(post.take())
    assert 1 <= n_sent < 20
    for number in range(1, n_sent + 1):
        dispatcher.on_embedded(answer_to(Embed(group=number, counts=int32s([900]), ids=np.full(900, 900, np.int32))))
    assert post.take() == []


async def test_a_call_that_was_given_up_without_an_embedder_leaves_nothing() -> None:
    """An embedder may be retired for hours, while calls keep coming and are given up."""
    post = FakePost()
    post.lives = False
    dispatcher = EmbeddingDispatcher(post)
    texts = texts_of(3)
    text = weakref.ref(texts[0])
    call = asyncio.create_task(dispatcher.embed(texts))
    await turn()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    del call, texts
    await turn()
    gc.collect()
    assert text() is None
