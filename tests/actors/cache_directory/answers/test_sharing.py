"""What the directory tells gateways of kept answers: everything to a new one, news to the others, again what was not sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b

from actors.cache_directory.answers.sharing import AnswerSharing
from actors.pages.answers.answer_cache import AnswerCache
from actors.pages.forgetting import Forgetting
from messages.caches.equal import AnswersKept, KeptAnswer, KeptSequence
from messages.wire.message import Message
from tests.support.waiting import DEADLINE_S


def answer(number: int, n_tokens: int = 4) -> KeptAnswer:
    key = blake2b(number.to_bytes(4, "little"), digest_size=16).digest()
    sequence = KeptSequence(ids=bytes(4 * n_tokens), reason="stop")
    return KeptAnswer(sequences=(sequence,), key=key, starts=(b"",), began_s=1.0, since_s=1.0)


class Bench:
    """A directory's answers, and what it has sent to whom."""

    def __init__(self, n_answers: int = 0) -> None:
        self.cache, self.sent, self.is_full = AnswerCache(1 << 24, 100.0), list[tuple[str, AnswersKept]](), False
        self.n_refused, self._something = 0, asyncio.Event()
        for number in range(n_answers):
            self.cache.keep(answer(number))
        self.sharing = AnswerSharing(self.cache, self._send)

    def _send(self, name: str, message: Message) -> bool:
        assert isinstance(message, AnswersKept)
        self._something.set()
        if self.is_full:
            self.n_refused += 1
            return False
        self.sent.append((name, message))
        return True

    def told(self, name: str) -> list[bytes]:
        """The keys that a gateway was told of."""
        return [one.key for to, message in self.sent if to == name for one in message.answers]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._something.clear()
                await self._something.wait()


async def test_a_new_gateway_is_told_everything_a_little_at_a_time() -> None:
    bench = Bench(200)
    bench.sharing.gateway_up("gateway/0")
    await bench.until(lambda: len(bench.told("gateway/0")) == 200)
    assert bench.told("gateway/0") == [one.key for one in bench.cache]
    assert max(len(message.answers) for _, message in bench.sent) == 64


async def test_a_message_has_few_tokens() -> None:
    bench = Bench()
    for number in range(40):
        bench.cache.keep(answer(number, 4000))
    bench.sharing.gateway_up("gateway/0")
    await bench.until(lambda: len(bench.told("gateway/0")) == 40)
    assert max(len(message.answers) for _, message in bench.sent) == 5


async def test_news_go_to_all_but_the_one_that_they_come_from() -> None:
    bench = Bench()
    for name in ("gateway/0", "gateway/1", "gateway/2"):
        bench.sharing.gateway_up(name)
    bench.sharing.gateway_down("gateway/2")
    bench.sharing.heard("gateway/0", AnswersKept(answers=(answer(1), answer(2)), used=(answer(1).key,)))
    bench.sharing.heard("gateway/1", AnswersKept(answers=(answer(1),)))  # it is known already
    await bench.until(lambda: len(bench.told("gateway/1")) == 2)
    assert {name for name, _ in bench.sent} == {"gateway/1"}


async def test_what_could_not_be_sent_is_sent_later_unless_it_was_forgotten() -> None:
    bench = Bench(3)
    bench.is_full = True
    bench.sharing.gateway_up("gateway/0")
    await bench.until(lambda: bench.n_refused >= 2)
    bench.cache.forget(Forgetting(), 5.0)
    bench.cache.restore(answer(1))
    bench.is_full = False
    await bench.until(lambda: len(bench.sent) == 1)
    assert bench.told("gateway/0") == [answer(1).key]


def test_answers_that_gateways_have_found_are_counted_if_they_are_here() -> None:
    bench = Bench(2)
    here, gone = answer(1).key, answer(7).key
    bench.sharing.heard("gateway/0", AnswersKept(used=(here, gone)))
    bench.sharing.heard("gateway/1", AnswersKept(used=(here,)))
    assert bench.sharing.n_used == 2
