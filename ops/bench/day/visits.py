"""What is kept of each request of a long run, and the figures that are drawn of all of them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from supervisor.drill.figures import pause_s, percentile
from supervisor.drill.streams import DrillStream

_ERRORS_KEPT = 12


@dataclass(frozen=True)
class Visit:
    """One request as its client saw it. Times are seconds of one monotonic clock. `first_s`: until the first text; math.inf:
    there was none. `outcome`: as of `outcome_of`, or "refused" for one that was never accepted."""

    tenant: str
    began_s: float
    first_s: float
    n_pieces: int
    outcome: str
    error: str = ""


@dataclass
class Death:
    """A process that was killed. `repaired_s`: until its successor was ready; math.inf: never. `until_s`: the next death.
    `gaps_s`: of each stream that was under way, the longest time without text until then."""

    role: str
    at_s: float
    repaired_s: float = math.inf
    until_s: float = math.inf
    gaps_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class TenantRow:
    """The requests of one tenant. Percentiles in milliseconds."""

    tenant: str
    requests: int
    failed: int
    pieces: int
    first_p50_ms: float
    first_p99_ms: float


@dataclass(frozen=True)
class DeathRow:
    """The deaths of one role. The longest gaps of streams in milliseconds, repairs in seconds."""

    role: str
    deaths: int
    gap_p50_ms: float
    gap_p99_ms: float
    repair_p50_s: float
    repair_p99_s: float


@dataclass(frozen=True)
class Minute:
    """What began in one minute."""

    requests: int = 0
    failed: int = 0
    deaths: int = 0


@dataclass(frozen=True)
class DayFigures:
    """A whole run. `availability`: the part of all requests whose answer was right and whole; `errors`: how many failed with
    each text."""

    requests: int
    wrong: int
    lost: int
    refused: int
    availability: float
    error_rate: float
    repair_p99_s: float
    tenants: Sequence[TenantRow]
    deaths: Sequence[DeathRow]
    minutes: Sequence[Minute]
    errors: Sequence[tuple[str, int]]


def visit_of(tenant: str, stream: DrillStream, outcome: str) -> Visit:
    """What is kept of a stream that has ended."""
    first_s = stream.arrivals_s[0] - stream.began_s if stream.arrivals_s else math.inf
    if outcome == "lost" and not stream.is_accepted:
        outcome = "refused"
    return Visit(tenant, stream.began_s, first_s, len(stream.pieces), outcome, stream.error)


def note_gaps(stream: DrillStream, deaths: Iterable[Death]) -> None:
    """Give each death that this stream has met the longest gap after it."""
    for death in deaths:
        if stream.began_s <= death.at_s and (gap := pause_s(stream, death.at_s, death.until_s)) is not None:
            death.gaps_s.append(gap)


def figures_of(visits: Sequence[Visit], deaths: Sequence[Death], began_s: float) -> DayFigures:
    """The figures of a run that began at `began_s`."""
    outcomes = Counter(visit.outcome for visit in visits)
    n, n_right = len(visits), outcomes["right"]
    share = n_right / n if n else 0.0
    errors = Counter(visit.error or visit.outcome for visit in visits if visit.outcome != "right")
    return DayFigures(
        requests=n,
        wrong=outcomes["wrong"],
        lost=outcomes["lost"],
        refused=outcomes["refused"],
        availability=share,
        error_rate=1.0 - share if n else 0.0,
        repair_p99_s=percentile([death.repaired_s for death in deaths], 0.99),
        tenants=[_tenant_row(name, visits) for name in sorted({visit.tenant for visit in visits})],
        deaths=[_death_row(role, deaths) for role in sorted({death.role for death in deaths})],
        minutes=_minutes(visits, deaths, began_s),
        errors=errors.most_common(_ERRORS_KEPT),
    )


def _tenant_row(name: str, visits: Iterable[Visit]) -> TenantRow:
    own = [visit for visit in visits if visit.tenant == name]
    firsts = [visit.first_s * 1e3 for visit in own if visit.first_s != math.inf]
    p50_ms, p99_ms = (round(percentile(firsts, share), 1) for share in (0.5, 0.99))
    failed = sum(visit.outcome != "right" for visit in own)
    return TenantRow(name, len(own), failed, sum(visit.n_pieces for visit in own), p50_ms, p99_ms)


def _death_row(role: str, deaths: Iterable[Death]) -> DeathRow:
    own = [death for death in deaths if death.role == role]
    gaps = [gap * 1e3 for death in own for gap in death.gaps_s]
    repairs = [death.repaired_s for death in own]
    gap_p50, gap_p99 = (round(percentile(gaps, share), 1) for share in (0.5, 0.99))
    repair_p50, repair_p99 = (round(percentile(repairs, share), 3) for share in (0.5, 0.99))
    return DeathRow(role, len(own), gap_p50, gap_p99, repair_p50, repair_p99)


def _minutes(visits: Iterable[Visit], deaths: Iterable[Death], began_s: float) -> list[Minute]:
    asked = Counter(_minute(visit.began_s, began_s) for visit in visits)
    failed = Counter(_minute(visit.began_s, began_s) for visit in visits if visit.outcome != "right")
    killed = Counter(_minute(death.at_s, began_s) for death in deaths)
    last = max((*asked, *killed), default=-1)
    return [Minute(asked[at], failed[at], killed[at]) for at in range(last + 1)]


def _minute(at_s: float, began_s: float) -> int:
    return max(int((at_s - began_s) // 60), 0)
