"""Shares kept answers with the other gateways, through the cache directory.

No request waits for it: what the directory has comes by itself, all of it when this gateway starts, and new answers of others
as they are kept. Without a directory each gateway keeps what it has computed.
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
        self._used: dict[bytes, None] = {}
        self._n_tokens, self._is_waiting = 0, False

    def kept(self, answer: KeptAnswer) -> None:
        """This gateway keeps an answer that it has computed."""
        n_tokens = sum(len(sequence.ids) // 4 for sequence in answer.sequences)
        if len(self._answers) < _MOST_ANSWERS and self._n_tokens + n_tokens <= _MOST_TOKENS:
            self._answers.append(answer)
            self._n_tokens += n_tokens
            self._send_soon()

    def found(self, key: bytes) -> None:
        """A request has found its answer, so the directory should keep it too."""
        if len(self._used) < _MOST_USED:
            self._used[key] = None
            self._send_soon()

    def heard(self, message: AnswersKept) -> None:
        """Another gateway keeps answers, or the directory says what it has."""
        for answer in message.answers:
            self._cache.keep(answer)

    def _send_soon(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._post.later(_EVERY_S, self._send)

    def _send(self) -> None:
        self._is_waiting = False
        answers = tuple(one for one in self._answers if self._cache.get(one.key) is one)  # what a reset has forgotten stays so
        message = AnswersKept(answers=answers, used=tuple(self._used))
        self._answers, self._used, self._n_tokens = [], {}, 0
        if (message.answers or message.used) and (directories := self._post.living("cache_directory")):
            send_now(self._post, directories[0], message)
