"""What a drill has found: for each fault the streams that were under way, the lost and wrong ones, and their pauses. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

from supervisor.drill.streams import DrillStream


@dataclass(frozen=True)
class Round:
    """One fault, the streams that ran meanwhile, and when the server answered a new request again."""

    fault: str
    harmed: str
    at_s: float  # on the clock of the streams
    answered_after_s: float  # math.inf: never
    streams: Sequence[DrillStream]
    until_s: float = math.inf  # when the next fault came
    continued_s: float = math.inf  # when a pause was over; math.inf: it was no pause


@dataclass(frozen=True)
class FaultRow:
    """All rounds of one fault. Pauses: the longest gap after the fault of each stream that was not lost; 0 without any."""

    fault: str
    rounds: int
    streams: int  # that were under way at the fault
    right: int
    lost: int
    wrong: int
    pause_p50_ms: float
    pause_p99_ms: float
    pause_max_ms: float
    back_max_s: float  # until a new request was answered
    healed_max_ms: float = 0.0  # from the end of a pause until every stream had new text; 0: it was no pause
    calm_p99_ms: float = 0.0  # the same pause without a fault
    pause_steps_p99: float = 0.0  # pause_p99_ms in steps of the server; 0: their time is not known

    @property
    def has_pauses(self) -> bool:
        """False where every stream was lost."""
        return self.pause_max_ms > 0


@dataclass(frozen=True)
class Tally:
    """What was counted in all rounds of one fault. Tallies of several drills can be added up; see `FaultRow` for the fields."""

    fault: str
    rounds: int
    streams: int
    right: int
    lost: int
    wrong: int
    pauses_ms: Sequence[float]
    back_max_s: float
    healed_max_ms: float = 0.0

    @property
    def row(self) -> FaultRow:
        """The figures of this fault."""
        pauses = self.pauses_ms
        p50_ms, p99_ms, max_ms = percentile(pauses, 0.5), percentile(pauses, 0.99), max(pauses, default=0.0)
        counts = (self.rounds, self.streams, self.right, self.lost, self.wrong)
        pauses_ms = (round(p50_ms, 1), round(p99_ms, 1), round(max_ms, 1))
        return FaultRow(self.fault, *counts, *pauses_ms, round(self.back_max_s, 3), round(self.healed_max_ms, 1))


def rows_of(rounds: Iterable[Round], reference: dict[str, str]) -> list[FaultRow]:
    """One row for each fault; see `tallies_of`."""
    return [tally.row for tally in tallies_of(rounds, reference)]


def tallies_of(rounds: Iterable[Round], reference: dict[str, str]) -> list[Tally]:
    """One tally for each fault, in the order of their first rounds. `reference`: the right answer to each prompt; prompts
    whose answer was not the same twice without a fault are not in it, and are judged by their completeness only."""
    by_fault: dict[str, list[Round]] = {}
    for one in rounds:
        by_fault.setdefault(one.fault, []).append(one)
    return [_tally(fault, together, reference) for fault, together in by_fault.items()]


def beside_calm(rows: Sequence[FaultRow], step_ms: float) -> list[FaultRow]:
    """The rows with the p99 pause of the first one, which is the run without a fault, and their own in steps of `step_ms`."""
    calm_ms = rows[0].pause_p99_ms if rows else 0.0
    steps = [round(row.pause_p99_ms / step_ms, 1) if step_ms else 0.0 for row in rows]
    return [replace(row, calm_p99_ms=calm_ms, pause_steps_p99=n) for row, n in zip(rows, steps, strict=True)]


def add_up(tallies: Iterable[Tally]) -> list[Tally]:
    """One tally for each fault, in the order in which the faults first appear."""
    sums: dict[str, Tally] = {}
    for one in tallies:
        known = sums.get(one.fault)
        sums[one.fault] = one if known is None else _sum(known, one)
    return list(sums.values())


def _sum(a: Tally, b: Tally) -> Tally:
    return Tally(
        a.fault,
        a.rounds + b.rounds,
        a.streams + b.streams,
        a.right + b.right,
        a.lost + b.lost,
        a.wrong + b.wrong,
        [*a.pauses_ms, *b.pauses_ms],
        max(a.back_max_s, b.back_max_s),
        max(a.healed_max_ms, b.healed_max_ms),
    )


def outcome_of(stream: DrillStream, reference: dict[str, str]) -> str:
    """right, wrong (a whole answer with another text, or a text that is not the beginning of the right one), or lost (cut)."""
    expected = reference.get(stream.prompt)
    if stream.is_wrong or (expected is not None and not expected.startswith(stream.text)):
        return "wrong"
    if not stream.is_complete:
        return "lost"
    return "right" if expected in (None, stream.text) else "wrong"


def pause_s(stream: DrillStream, at_s: float, until_s: float = math.inf) -> float | None:
    """The longest time without text between the fault and `until_s`, when the next fault came. A pause that goes on after the
    next fault counts for both. None for a stream that was not under way, or got no more text.
    """
    arrivals = stream.arrivals_s
    after = bisect_right(arrivals, at_s)
    if not 0 < after < len(arrivals):
        return None
    last = bisect_right(arrivals, until_s) + 1
    return max(later - before for before, later in pairwise([at_s, *arrivals[after:last]]))


def healed_s(stream: DrillStream, continued_s: float) -> float | None:
    """The time from the end of a pause to the next text. None for a stream that had none before, or none after it."""
    after = bisect_right(stream.arrivals_s, continued_s)
    return stream.arrivals_s[after] - continued_s if 0 < after < len(stream.arrivals_s) else None


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of the values do not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0


def as_json(rows: Sequence[FaultRow], facts: dict[str, object]) -> dict[str, object]:
    """The rows and the conditions of the drill, for a file. An infinite time is null."""
    plain = [{k: None if v == math.inf else v for k, v in asdict(row).items()} for row in rows]
    return {**facts, "rows": plain}


def _tally(fault: str, rounds: Sequence[Round], reference: dict[str, str]) -> Tally:
    met = [(one, stream) for one in rounds for stream in one.streams if _was_under_way(stream, one.at_s)]
    outcomes = [outcome_of(stream, reference) for _, stream in met]
    whole = [pair for pair, outcome in zip(met, outcomes, strict=True) if outcome != "lost"]
    pauses = [gap * 1e3 for one, stream in whole if (gap := pause_s(stream, one.at_s, one.until_s)) is not None]
    counts = (outcomes.count("right"), outcomes.count("lost"), outcomes.count("wrong"))
    healed = [heal * 1e3 for one, stream in whole if (heal := healed_s(stream, one.continued_s)) is not None]
    back_max_s = max(one.answered_after_s for one in rounds)
    return Tally(fault, len(rounds), len(met), *counts, pauses, back_max_s, max(healed, default=0.0))


def _was_under_way(stream: DrillStream, at_s: float) -> bool:
    """True if the stream had begun and not ended at the fault. A stream whose last text came earlier was over, or was cut."""
    is_over = stream.is_complete and bool(stream.arrivals_s) and stream.arrivals_s[-1] <= at_s
    return stream.began_s <= at_s and not is_over
