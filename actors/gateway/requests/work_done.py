"""How a request has ended, and what it has taken at its schedulers, over all of its sequences. Pure."""

from __future__ import annotations

from actors.gateway.requests.request import GrowingSequence, Request
from messages.generation.sequences import Work
from messages.outcomes import EndReason

_MOST_SERIOUS_FIRST: tuple[EndReason, ...] = ("quarantined", "failed", "cancelled", "length", "stop")


def work_of(request: Request) -> Work | None:
    """For each phase the longest time of any sequence, and the drafts of all of them; only last attempts count.

    None unless the schedulers of all sequences have said it: a stop string, for example, ends a sequence at the gateway."""
    if len(request.sequences) == 1:  # the most frequent case
        ended = request.sequences[0].ended
        return None if ended is None else ended.work
    works = [sequence.ended.work for sequence in request.sequences if sequence.ended is not None and sequence.ended.work]
    if len(works) != len(request.sequences):
        return None
    return Work(
        queue_s=max(work.queue_s for work in works),
        prefill_s=max(work.prefill_s for work in works),
        decode_s=max(work.decode_s for work in works),
        n_drafted=sum(work.n_drafted for work in works),
        n_accepted=sum(work.n_accepted for work in works),
    )


def n_cached_of(request: Request) -> int:
    """Prompt tokens that the prefix cache saved: of the sequences of each prompt, those of the one that computed it, which has
    the fewest. The others use what that one has computed, which is no hit of the cache."""
    return min(sum([n_cached_at(sequence) for sequence in request.sequences[:: request.spec.n]]), sum(request.n_prompt))


def n_cached_at(sequence: GrowingSequence) -> int:
    """The same for the prompt of one sequence."""
    n, ended = sequence.spec.n, sequence.ended
    if n == 1:
        return 0 if ended is None else ended.n_cached
    first = sequence.index - sequence.index % n
    prompt_ends = [one.ended for one in sequence.request.sequences[first : first + n] if one.ids]  # others computed no prompt
    return min((ended.n_cached for ended in prompt_ends if ended is not None), default=0)


def ending_of(request: Request) -> EndReason:
    """The most serious ending of the sequences of a request that is over."""
    reasons = {sequence.ended.reason for sequence in request.sequences if sequence.ended is not None}
    return next(reason for reason in _MOST_SERIOUS_FIRST if reason in reasons)


def server_timing(request: Request) -> str:
    """The value of the header Server-Timing of a request that is over: milliseconds of each phase that is known, and in all;
    and how often a sequence was submitted, if that is more than once."""
    work = work_of(request)
    phases = [] if work is None else [("queue", work.queue_s), ("prefill", work.prefill_s), ("decode", work.decode_s)]
    phases.append(("total", request.ended_s - request.began_s))
    timing = ", ".join([f"{name};dur={max(seconds, 0.0) * 1e3:.3f}" for name, seconds in phases])
    n_submissions = max(sequence.n_submissions for sequence in request.sequences)
    return timing if n_submissions <= 1 else f'{timing}, submissions;desc="{n_submissions}"'
