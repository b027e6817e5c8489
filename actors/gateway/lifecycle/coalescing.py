"""Equal requests that run at the same time are computed once: the others, its followers, get the tokens of the first. Pure.

    leader     its sequences are submitted to schedulers
    follower   waits for no scheduler: each token and each complete ending of the leader becomes its own, in the same record of
               the journal. Its id, deadline, readers and text are its own.

A leader that fails, is cancelled or is withdrawn leaves; one of its followers is computed from its next token on, and the
others follow that one. Followers have everything that their leader has, so a change of leaders is a pause and nothing else. The
journal knows nothing of all this: the followers of a dead gateway are ordinary requests of the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from actors.gateway.lifecycle.step_rows import StepRows
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended
from messages.generation.terms import Terms
from messages.outcomes import EndReason

_COMPLETE: tuple[EndReason, ...] = ("stop", "length")
_MOST_TOKENS = 4096  # that a follower gets as it joins: their text is made in one turn of the event loop, 5 us a token


@dataclass(eq=False, slots=True)
class _RequestGroup:
    """Equal requests; the first one is the leader."""

    key: bytes
    members: list[Request]


class Coalescing:
    """The groups of one gateway. `n_requests`: that have joined a leader. `n_tokens`: that they got from leaders."""

    def __init__(self) -> None:
        self._group_by_key: dict[bytes, _RequestGroup] = {}  # the groups that can be joined
        self._group_by_number: dict[int, _RequestGroup] = {}  # of each member
        self.n_requests = self.n_tokens = 0

    def __len__(self) -> int:
        return len(self._group_by_number)

    def leader_for(self, key: bytes, terms: Terms) -> Request | None:
        """The request that one with this key and these terms may follow; None: there is none.

        A follower must lose nothing by it: its leader is as urgent, and its tokens come in groups that are no larger."""
        group = self._group_by_key.get(key)
        if group is None or sum([len(sequence.ids) for sequence in group.members[0].sequences]) > _MOST_TOKENS:
            return None
        return group.members[0] if _serves(group.members[0].spec.terms, terms) else None

    def lead(self, key: bytes, request: Request) -> None:
        """A new request is computed, and others with this key may follow it from now on."""
        self._group_by_key[key] = self._group_by_number[request.number] = _RequestGroup(key, [request])

    def join(self, request: Request, leader: Request) -> StepRows:
        """A new request follows this leader. Returns what it gets at once."""
        group = self._group_by_number[leader.number]
        group.members.append(request)
        self._group_by_number[request.number] = group
        self.n_requests += 1
        rows = StepRows()
        for source, target in zip(leader.sequences, request.sequences, strict=True):
            target.is_taken = source.is_taken
            self._copy(source, target, rows)
            if source.ended is not None:
                _end(source.ended, target, rows)
        return rows

    def followers_of(self, request: Request) -> Sequence[Request]:
        """Those that follow this request now."""
        group = self._group_by_number.get(request.number)
        return () if group is None or group.members[0] is not request else group.members[1:]

    def follow(self, rows: StepRows) -> list[Request]:
        """Add to the new tokens and endings of leaders those of their followers. Returns the requests that are to be submitted,
        because their leaders have left. Call it with all rows before they are recorded."""
        if not self._group_by_number:
            return []
        for source, _, _ in tuple(rows.rows):
            for follower in self.followers_of(source.request):
                self._copy(source, follower.sequences[source.index], rows)
        to_submit = list[Request]()
        for source in tuple(rows.endings):
            if source.ended is not None and source.ended.reason in _COMPLETE:
                for follower in self.followers_of(source.request):
                    _end(source.ended, follower.sequences[source.index], rows)
            elif source.ended is not None:
                to_submit += self.leave(source.request, is_harmful=_is_harmful(source, source.ended))
        return to_submit

    def leave(self, request: Request, *, is_harmful: bool = False) -> list[Request]:
        """A request will not be complete. Returns the requests that are to be submitted instead: none if it led nobody.

        `is_harmful`: it may have killed workers or schedulers. Then each follower is on its own, because one after the other
        would kill as many again. Those of the same caller are as suspect as it was."""
        group = self._group_by_number.pop(request.number, None)
        if group is None:
            return []
        was_leader = group.members[0] is request
        group.members.remove(request)
        if not group.members:
            self._forget(group)
        if not (was_leader and group.members):
            return []
        for one in group.members:
            if one.spec.terms.caller == request.spec.terms.caller:
                _inherit(request, one)
        members = sorted(group.members, key=lambda one: (one.spec.terms.priority, one.spec.terms.group_tokens))
        leader = members[0].spec.terms
        alone = [one for one in members if is_harmful or not _serves(leader, one.spec.terms)]
        group.members = [] if is_harmful else [one for one in members if _serves(leader, one.spec.terms)]
        for one in alone:
            del self._group_by_number[one.number]
        if not group.members:
            self._forget(group)
        return alone + group.members[:1]

    def over(self, request: Request) -> list[Request]:
        """A request is over, and its answer is visible. Its followers have the same answer: it need not be kept again. Returns
        the requests that had everything from their leader, and are known to for the first time."""
        group = self._group_by_number.get(request.number)
        if group is None:
            return []
        if group.members[0] is not request:
            group.members.remove(request)
            del self._group_by_number[request.number]
            return [request]
        self._forget(group)
        for member in group.members:
            del self._group_by_number[member.number]
        for follower in group.members[1:]:
            follower.answer_key = b""
        return group.members[1:]

    def _copy(self, source: GrowingSequence, target: GrowingSequence, rows: StepRows) -> None:
        """Give a follower's sequence the tokens that it lacks."""
        first, stop = len(target.ids), len(source.ids)
        if stop == first:
            return
        if not first and source.logprobs.prompt is not None:
            target.add_prompt_logprobs(source.logprobs.prompt)
        logprobs = source.logprobs.of(first, stop) if source.wants_logprobs else None
        self.n_tokens += target.accept(first, source.ids[first:], logprobs, source.n_cached)
        rows.add(target, first)

    def _forget(self, group: _RequestGroup) -> None:
        """Remove a group, so that no further request joins it."""
        if self._group_by_key.get(group.key) is group:
            del self._group_by_key[group.key]


def _serves(leader: Terms, follower: Terms) -> bool:
    return leader.priority <= follower.priority and leader.group_tokens <= follower.group_tokens


def _is_harmful(sequence: GrowingSequence, ended: Ended) -> bool:
    """True if a sequence that has failed may have killed workers or schedulers."""
    return ended.reason == "quarantined" or (ended.is_failure and ended.code != "deadline" and sequence.n_losses > 0)


def _inherit(leader: Request, follower: Request) -> None:
    """A follower is to compute what its leader has computed: the deaths under the leader count for it as well."""
    for source, target in zip(leader.sequences, follower.sequences, strict=True):
        target.n_losses, target.suspicion = source.n_losses, source.suspicion


def _end(ended: Ended, target: GrowingSequence, rows: StepRows) -> None:
    """A follower's sequence ends as its leader's. The work was that of the leader alone."""
    target.end(Ended(reason=ended.reason, n_cached=ended.n_cached))
    rows.ended(target)
