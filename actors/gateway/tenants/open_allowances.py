"""The requests of tenants with limits at this gateway, and what of them the accounts do not know yet. Pure.

A request is told when it is over, and now and then before: the accounts have set aside what it can use at most, so what it
uses of that changes no decision. One that may use more than a minute has was not set aside whole, so it is told with each
message. One that is over is kept until the accounts have it on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from actors.gateway.requests.request import Request
from messages.access.allowances import MOST_TOLD, SpentAllowance, UsageTold

PARTS = 16  # one in so many open requests is told with each message of news, by turns
MOST_UNTOLD = 65_536  # requests that are over and not on disk; the oldest of more are forgotten


class OpenAllowance:
    """One request. `request`: once it is accepted."""

    __slots__ = (
        "is_asked", "is_over", "is_recovered", "is_set_aside", "key", "most_tokens", "part", "request",
        "sequences", "shown", "tenant", "tokens", "told",
    )  # fmt: skip

    def __init__(
        self, key: str, tenant: str, sequences: int, prompt_tokens: int, most_tokens: int, *, is_set_aside: bool = True
    ) -> None:
        """`is_set_aside`: all that it can use is set aside for it, as far as this gateway knows."""
        self.is_set_aside, self.part = is_set_aside, PARTS
        self.key, self.tenant, self.sequences, self.most_tokens = key, tenant, sequences, most_tokens
        self.tokens = prompt_tokens  # that it has used so far
        self.request: Request | None = None
        self.is_over = False
        self.is_asked = False  # it is not decided yet whether it is accepted
        self.is_recovered = False  # it was over before this process began
        self.told = 0  # the newest message that it was in
        self.shown = -1  # its tokens in that message

    def refresh(self) -> None:
        """Count what it has used by now."""
        if self.request is not None and not self.is_over:
            self.tokens = tokens_of(self.request)

    def end(self, tokens: int) -> None:
        """It is over, and has used so many tokens from its beginning."""
        self.tokens, self.is_over, self.told, self.request = tokens, True, 0, None

    def decided(self) -> None:
        """It may be accepted. The accounts are told so, even if they were told of it before."""
        self.is_asked, self.shown = False, -1

    def row(self) -> SpentAllowance:
        """What the accounts are told of it."""
        return SpentAllowance(
            request=self.key,
            tenant=self.tenant,
            sequences=self.sequences,
            most_tokens=self.most_tokens,
            tokens=self.tokens,
            is_over=self.is_over,
            is_recovered=self.is_recovered or self.is_asked,  # accounts that have refused it must not count it
        )


def tokens_of(request: Request) -> int:
    """What a request has used: the tokens of its prompts and of its answers, as clients see them."""
    return sum(request.n_prompt) + request.n_generated


class OpenAllowances:
    """All such requests of one gateway."""

    def __init__(self) -> None:
        self._open: dict[str, OpenAllowance] = {}  # by key
        # the same by turns, and last those that are told with each message
        self._parts: list[dict[str, OpenAllowance]] = [{} for _ in range(PARTS + 1)]
        self._n_begun = self._turn = 0
        self._over: dict[str, OpenAllowance] = {}  # in the order in which they ended
        self._untold: list[OpenAllowance] = []  # of those that are over
        self._number = self._listing = self._noted = 0
        self._n_open: dict[str, int] = {}  # sequences, by tenant
        self.n_forgotten = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._over)

    def n_open(self, tenant: str) -> int:
        """Sequences of a tenant that are not over."""
        return self._n_open.get(tenant, 0)

    def key_of(self, request_id: str) -> str:
        """The key of a new request: its id, unless an earlier one with this id is not on disk yet."""
        key, number = request_id, 1
        while key in self._open or key in self._over:
            number += 1
            key = f"{request_id[:200]}~{number}"
        return key

    def begin(self, one: OpenAllowance) -> None:
        """A request is asked for, or goes on."""
        self._open[one.key] = one
        if one.is_set_aside:
            one.part, self._n_begun = self._n_begun % PARTS, self._n_begun + 1
        self._parts[one.part][one.key] = one
        self._n_open[one.tenant] = self.n_open(one.tenant) + one.sequences

    def end(self, one: OpenAllowance, tokens: int) -> None:
        """A request is over, and has used so many tokens."""
        if self._open.pop(one.key, None) is None:
            return
        self._close(one)
        one.end(tokens)
        self._over[one.key] = one
        self._untold.append(one)
        if len(self._over) > MOST_UNTOLD:
            self.n_forgotten += 1
            forgotten = self._over.pop(next(iter(self._over)))
            self._untold = [other for other in self._untold if other is not forgotten]

    def drop(self, one: OpenAllowance) -> None:
        """The accounts have refused a request: they know nothing of it."""
        if self._open.pop(one.key, None) is not None:
            self._close(one)

    def noted(self, number: int) -> None:
        """What was told up to this number is on disk: what was over by then is forgotten."""
        self._noted = max(self._noted, number)
        self._over = {key: one for key, one in self._over.items() if not one.told or one.told > number}

    def overs(self) -> Iterator[UsageTold]:
        """What is over, and was not told yet."""
        rows, self._untold = self._untold, []
        for part in _parts(rows):
            yield self._told(part)

    def news(self) -> Iterator[UsageTold]:
        """What is over, and what has grown of the requests whose turn it is."""
        yield from self.overs()
        self._turn = (self._turn + 1) % PARTS
        asked = [*self._parts[self._turn].values(), *self._parts[PARTS].values()]
        for one in asked:
            one.refresh()
        for part in _parts([one for one in asked if one.shown != one.tokens]):
            yield self._told(part)

    def list_all(self) -> Iterator[UsageTold]:
        """All requests, for accounts that have to compare what they know."""
        self._listing, self._untold = self._listing + 1, []
        for one in self._open.values():
            one.refresh()
        parts = [*_parts([*self._open.values(), *self._over.values()])] or [[]]
        for part in parts:
            yield self._told(part, self._listing, is_last=part is parts[-1])

    def unsent(self, message: UsageTold) -> None:
        """A message could not be sent: what is in it has to be told again."""
        for row in message.spent:
            one = self._open.get(row.request) or self._over.get(row.request)
            if one is not None and one.told == message.number:
                one.told, one.shown = 0, -1
                if one.is_over:
                    self._untold.append(one)

    def _told(self, rows: list[OpenAllowance], listing: int = 0, *, is_last: bool = False) -> UsageTold:
        self._number += 1
        for one in rows:
            one.told, one.shown = self._number, one.tokens
        return UsageTold(
            number=self._number, spent=[one.row() for one in rows], noted=self._noted, listing=listing, is_last=is_last
        )

    def _close(self, one: OpenAllowance) -> None:
        del self._parts[one.part][one.key]
        left = self.n_open(one.tenant) - one.sequences
        if left > 0:
            self._n_open[one.tenant] = left
        else:
            self._n_open.pop(one.tenant, None)


def _parts(rows: Iterable[OpenAllowance]) -> Iterator[list[OpenAllowance]]:
    every = [*rows]
    for first in range(0, len(every), MOST_TOLD):
        yield every[first : first + MOST_TOLD]
