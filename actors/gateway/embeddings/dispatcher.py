"""The texts of one gateway on their way to the embedder: every accepted text gets its vector, whatever dies in between.

A call is cut into groups of texts of similar length. Callers take turns, and so do the calls of each of them: a short one
waits neither for a long one nor for the many of another caller. When
an embedder dies, the groups that it had are sent to its next incarnation. A group that was there at several deaths which a
computation may have caused is sent alone, so that a text that kills embedders is found, and no other text fails with it.

Before that a canary is sent: meaningless texts of the same lengths. If the embedder dies of them too, its device or the machine
is at fault, and no text is suspect any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from actors.gateway.dispatch.post import Post, send_now
from actors.gateway.requests.refusals import Refusal
from messages.embedding import Embed, Embedded
from messages.lifecycle.lifecycle import Cause, leaves_memory_intact
from messages.wire.arrays import int32s

_GROUP_TEXTS = 32
_GROUP_TOKENS = 1024
_MAX_SENT = 4  # groups that an embedder has at a time: one that it computes, and some that wait for it
_SUSPECT_DEATHS = 2  # after these, a group is sent alone
_MAX_DEATHS = 4  # of embedders; then the call fails
_RETRY_S = 0.05


@dataclass(eq=False)
class _Call:
    """The texts of one call, and what is left of them to send."""

    texts: Sequence[np.ndarray]
    done: asyncio.Future[np.ndarray]
    groups: deque[_Group] = field(default_factory=deque)
    vectors: np.ndarray | None = None  # float32 [texts, dimensions], filled as answers come
    n_open: int = 0  # texts without a vector
    on_sent: Callable[[], None] = lambda: None  # called when texts of it go to an embedder
    caller: bytes = b""


@dataclass(eq=False)
class _Group:
    """The texts of a call that travel in one message, by their indexes."""

    call: _Call
    indexes: list[int]
    n_deaths: int = 0


class _Turns:
    """The calls with groups to send."""

    def __init__(self) -> None:
        self._by_caller: dict[bytes, deque[_Call]] = {}  # the first caller's first call is next

    def __iter__(self) -> Iterator[_Call]:
        return chain.from_iterable(self._by_caller.values())

    def first(self) -> _Call | None:
        """The call whose turn it is."""
        return next(iter(self), None)

    def append(self, call: _Call) -> None:
        """A call waits for its turn."""
        self._by_caller.setdefault(call.caller, deque()).append(call)

    def put_first(self, call: _Call) -> None:
        """It is this call's turn again."""
        self.remove(call)
        calls = self._by_caller.pop(call.caller, deque[_Call]())
        calls.appendleft(call)
        self._by_caller = {call.caller: calls, **self._by_caller}

    def remove(self, call: _Call) -> None:
        """A call waits no longer."""
        calls = self._by_caller.get(call.caller)
        if calls is not None and call in calls:
            calls.remove(call)
            if not calls:
                del self._by_caller[call.caller]

    def pass_on(self, call: _Call) -> None:
        """A group of this call is sent: another caller is next, and of this one another call."""
        self.remove(call)
        others = self._by_caller.pop(call.caller, None)
        if others is not None:
            self._by_caller[call.caller] = others
        if call.groups:
            self.append(call)


class EmbeddingDispatcher:
    """Sends the texts of calls to the embedder and collects their vectors. All methods are called on the event loop."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._calls = _Turns()
        self._sent: dict[int, _Group] = {}
        self._number = 0
        self._retries = False
        self._canary = 0  # number of the canary that the embedder computes; 0: none
        self._needs_canary = False  # before a suspect is sent
        self.n_resent = 0

    async def embed(
        self, texts: Sequence[np.ndarray], on_sent: Callable[[], None] = lambda: None, caller: bytes = b""
    ) -> np.ndarray:
        """`texts`: token ids, int32 [n] each, n >= 1. Returns float32 [texts, dimensions], in their order. `on_sent`: called
        each time that some of them go to an embedder. `caller`: who asks. Raises: Refusal."""
        call = _Call(texts, asyncio.get_running_loop().create_future(), n_open=len(texts), on_sent=on_sent, caller=caller)
        call.groups.extend(_grouped(call))
        self._calls.append(call)
        self._send()
        try:
            return await call.done
        finally:
            call.groups.clear()  # its client may have left
            self._calls.remove(call)  # or it stays until an embedder is there, which may be never

    def embedder_up(self) -> None:
        """An embedder is ready."""
        self._send()

    def embedder_down(self, cause: Cause) -> None:
        """The embedder has died: the groups that it had are sent again, in their order."""
        lost, self._sent = list(self._sent.values()), {}
        self.n_resent += len(lost)
        had_canary, self._canary = bool(self._canary), 0
        is_evidence = not leaves_memory_intact(cause)
        self._needs_canary |= is_evidence
        if is_evidence and had_canary:
            self._clear_suspects()
        for group in reversed(lost):
            group.n_deaths += is_evidence
            call = group.call
            if group.n_deaths >= _MAX_DEATHS and not call.done.done():
                call.done.set_exception(Refusal("internal", "the embedder died again and again while it computed this text"))
            if not call.done.done():
                self._put_back(group)

    def on_embedded(self, message: Embedded) -> None:
        """Vectors have come."""
        if message.group == self._canary:
            self._canary, self._needs_canary = 0, False
        group = self._sent.pop(message.group, None)
        if group is not None and not group.call.done.done():
            _fill(group, message.vectors.reshape(len(group.indexes), -1))
        self._send()

    def _send(self) -> None:
        """Send as much as the embedder may have at a time."""
        names = self._post.living("embedder")
        while names and not self._canary and (group := self._next()) is not None:
            is_canary = self._needs_canary and group.n_deaths >= _SUSPECT_DEATHS
            self._number += 1
            if not send_now(self._post, names[0], _message(self._number, group, is_canary=is_canary)):
                self._put_back(group)
                self._retry_soon()
            elif is_canary:
                self._put_back(group)
                self._canary = self._number
            else:
                self._sent[self._number] = group
                group.call.on_sent()
                continue
            return

    def _next(self) -> _Group | None:
        """The next group, taken out of its call; None: nothing waits, or it has to wait longer."""
        if len(self._sent) >= _MAX_SENT or any(group.n_deaths >= _SUSPECT_DEATHS for group in self._sent.values()):
            return None
        call = self._calls.first()
        if call is None or (call.groups[0].n_deaths >= _SUSPECT_DEATHS and self._sent):
            return None
        group = call.groups.popleft()
        self._calls.pass_on(call)
        return group

    def _put_back(self, group: _Group) -> None:
        """Make this group the next one of its call again."""
        group.call.groups.appendleft(group)
        self._calls.put_first(group.call)

    def _clear_suspects(self) -> None:
        """The embedder has died of a canary: its deaths say nothing about texts."""
        for call in self._calls:
            for group in call.groups:
                group.n_deaths = 0

    def _retry_soon(self) -> None:
        """The embedder takes nothing just now."""
        if not self._retries:
            self._retries = True
            self._post.later(_RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retries = False
        self._send()


def _message(number: int, group: _Group, *, is_canary: bool) -> Embed:
    """The texts of a group, or a canary of the same lengths: the token 0, which every model has."""
    texts = [group.call.texts[index] for index in group.indexes]
    ids = np.concatenate(texts)
    return Embed(group=number, counts=int32s([len(text) for text in texts]), ids=int32s(ids * 0 if is_canary else ids))


def _fill(group: _Group, vectors: np.ndarray) -> None:
    call = group.call
    if call.vectors is None:
        call.vectors = np.empty((len(call.texts), vectors.shape[1]), np.float32)
    call.vectors[group.indexes] = vectors
    call.n_open -= len(group.indexes)
    if not call.n_open:
        call.done.set_result(call.vectors)


def _grouped(call: _Call) -> list[_Group]:
    """The texts of a call, the shortest first, cut into groups."""
    groups: list[_Group] = []
    n_tokens = 0
    for index in sorted(range(len(call.texts)), key=lambda index: len(call.texts[index])):
        length = len(call.texts[index])
        if not groups or len(groups[-1].indexes) >= _GROUP_TEXTS or n_tokens + length > _GROUP_TOKENS:
            groups.append(_Group(call, []))
            n_tokens = 0
        groups[-1].indexes.append(index)
        n_tokens += length
    return groups
