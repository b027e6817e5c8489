"""Shares kept answers with the other gateways, through the cache directory.

No request waits for it: what the directory has comes by itself, all of it when this gateway starts, and new answers of others
as they are kept. Without a directory each gateway keeps what it has computed, and tells the next one of it.
"""

from __future__ import annotations

from actors.gateway.dispatch.post import Post, send_now
from actors.pages.answers.answer_cache import AnswerCache
from messages.caches.equal import AnswersKept, KeptAnswer

_EVERY_S = 0.05  # between two messages: a message costs more than an answer in it
_MOST_ANSWERS, _MOST_TOKENS = 256, 1 << 16  # in one message; more of them are not shared
_MOST_USED = 1024  # the same for keys


class SharedAnswers:
    """What one gateway says of its answers in `cache`, and hears of those of others."""

    def __init__(self, post: Post, cache: AnswerCache) -> None:
        self._post, self._cache = post, cache
        self._answers: list[KeptAnswer] = []  # that the directory is not told of yet
        self._untold: list[bytes] = []  # keys of answers that a new directory may lack, the newest at the end
        self._used: dict[bytes, None] = {}
        self._of_others: set[bytes] = set()  # keys of answers that came from the directory, and of some that have left since
        self._n_tokens, self._is_waiting = 0, False

    def directory_up(self) -> None:
        """There is a new directory. It has what the one before has written, and is told what there is here, a little at a time:
        the newest answers first, because these it may lack."""
        self._untold = self._cache.keys()
        if self._untold:
            self._send_soon()

    def kept(self, answer: KeptAnswer) -> None:
        """This gateway keeps an answer that it has computed."""
        self._of_others.discard(answer.key)
        n_tokens = _tokens_of(answer)
        if len(self._answers) < _MOST_ANSWERS and self._n_tokens + n_tokens <= _MOST_TOKENS:
            self._answers.append(answer)
            self._n_tokens += n_tokens
            self._send_soon()

    def found(self, key: bytes) -> None:
        """A request has found its answer, so the directory should keep it too."""
        if len(self._used) < _MOST_USED:
            self._used[key] = None
            self._send_soon()

    def is_of_others(self, key: bytes) -> bool:
        """True if this gateway has not computed the answer of this key that it keeps."""
        return key in self._of_others

    def heard(self, message: AnswersKept) -> None:
        """Another gateway keeps answers, or the directory says what it has."""
        for answer in message.answers:
            if self._cache.keep(answer):
                self._of_others.add(answer.key)
        if len(self._of_others) > 2 * len(self._cache) + _MOST_USED:
            self._of_others = {key for key in self._of_others if self._cache.get(key) is not None}

    def _send_soon(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._post.later(_EVERY_S, self._send)

    def _send(self) -> None:
        self._is_waiting = False
        if not (directories := self._post.living("cache_directory")):
            self._answers, self._used, self._n_tokens, self._untold = [], {}, 0, []  # the next one is told everything
            return
        answers = [one for one in self._answers if self._cache.get(one.key) is one]  # what a reset has forgotten stays so
        earlier = self._earlier_ones(_MOST_ANSWERS - len(answers), _MOST_TOKENS - self._n_tokens)
        message = AnswersKept(answers=(*answers, *earlier), used=tuple(self._used))
        self._answers, self._used, self._n_tokens = [], {}, 0
        if (message.answers or message.used) and not send_now(self._post, directories[0], message):
            self._untold += [one.key for one in reversed(earlier)]
        if self._untold:
            self._send_soon()

    def _earlier_ones(self, most: int, most_tokens: int) -> list[KeptAnswer]:
        """Take some of the answers that a new directory may lack."""
        found, now_s = list[KeptAnswer](), self._post.wall_s()
        while self._untold and len(found) < most and most_tokens > 0:
            answer = self._cache.get(self._untold.pop())
            if answer is not None and self._cache.is_fresh(answer, now_s):
                found.append(answer)
                most_tokens -= _tokens_of(answer)
        return found


def _tokens_of(answer: KeptAnswer) -> int:
    return sum(len(sequence.ids) // 4 for sequence in answer.sequences)
