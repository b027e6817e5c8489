"""What remains of a run's answers: counts and latencies, small enough to travel between processes and to be added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise, product

import msgspec

from supervisor.bench.http.completion_events import MeasuredAnswer
from supervisor.bench.load import Run

_ADDED = (
    "client_cpu_s", "n_ended", "n_good", "input_tokens", "output_tokens", "chunks",
    "send_delay_s", "ttft_s", "tpot_s", "chunk_gap_s", "e2e_s",
)  # fmt: skip


class ErrorSeen(msgspec.Struct):
    """One kind of error: how often, and the first one in words."""

    count: int
    first: str


class Samples(msgspec.Struct):
    """Times are seconds. `began_s` and `ended_s` belong to the machine's monotonic clock, which its processes share."""

    began_s: float
    ended_s: float
    errors: dict[str, ErrorSeen]
    is_counted_by_usage: bool
    finish_reasons: dict[str, int]
    client_cpu_s: float = 0.0
    n_ended: int = 0
    n_good: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    chunks: int = 0
    send_delay_s: list[float] = []
    ttft_s: list[float] = []
    tpot_s: list[float] = []
    chunk_gap_s: list[float] = []
    e2e_s: list[float] = []

    @property
    def wall_s(self) -> float:
        """From the first request to the end of the last."""
        return self.ended_s - self.began_s


def samples_of(run: Run) -> Samples:
    """Everything that a report needs. Only requests without an error count in latencies and tokens; where the server never
    says how many tokens there were, chunks stand in for them."""
    good = [answer for answer in run.answers if not answer.error]
    streamed = [answer for answer in good if answer.text_s]
    is_by_usage = any(answer.n_tokens for answer in good)
    chunks = sum(len(answer.text_s) for answer in good)
    return Samples(
        began_s=run.began_s,
        ended_s=run.ended_s,
        client_cpu_s=run.client_cpu_s,
        n_ended=len(run.answers),
        n_good=len(good),
        errors=_errors(run.answers),
        input_tokens=sum(answer.n_prompt for answer in good),
        output_tokens=sum(answer.n_tokens for answer in good) if is_by_usage else chunks,
        chunks=chunks,
        is_counted_by_usage=is_by_usage,
        finish_reasons=dict(Counter(answer.finish or "none" for answer in good)),
        send_delay_s=[answer.sent_s - answer.scheduled_s for answer in good if answer.sent_s],
        ttft_s=[answer.text_s[0] - answer.scheduled_s for answer in streamed],
        tpot_s=[(a.text_s[-1] - a.text_s[0]) / (a.n_tokens - 1) for a in streamed if a.n_tokens > 1],
        chunk_gap_s=[after - before for answer in streamed for before, after in pairwise(answer.text_s)],
        e2e_s=[answer.ended_s - answer.scheduled_s for answer in good],
    )


def add_up(parts: Sequence[Samples]) -> Samples:
    """The samples of several load processes that ran side by side, as one."""
    errors: dict[str, ErrorSeen] = {}
    for kind, error in chain.from_iterable(part.errors.items() for part in parts):
        known = errors.get(kind)
        errors[kind] = ErrorSeen(error.count + known.count, known.first) if known else error
    finish: Counter[str] = Counter()
    for part in parts:
        finish.update(part.finish_reasons)
    total = Samples(
        began_s=min(part.began_s for part in parts),
        ended_s=max(part.ended_s for part in parts),
        errors=errors,
        is_counted_by_usage=all(part.is_counted_by_usage for part in parts if part.n_good),
        finish_reasons=dict(finish),
    )
    for part, name in product(parts, _ADDED):
        setattr(total, name, getattr(total, name) + getattr(part, name))
    return total


def _errors(answers: Sequence[MeasuredAnswer]) -> dict[str, ErrorSeen]:
    seen: dict[str, ErrorSeen] = {}
    for answer in answers:
        if answer.error:
            known = seen.setdefault(answer.error, ErrorSeen(0, answer.detail[:200]))
            known.count += 1
    return seen
