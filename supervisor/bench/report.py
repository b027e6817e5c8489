"""From samples to figures: one JSON document, and the same as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from supervisor.bench.samples import Samples
from supervisor.bench.statistics import summarize

_MS = 1e3
LATENCIES = ("ttft_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms")


def figures(samples: Samples) -> dict:
    """The figures of a run. Latencies in milliseconds."""
    s, wall_s = samples, max(samples.wall_s, 1e-9)
    errors = sorted(s.errors.items(), key=lambda item: -item[1].count)
    return {
        "requests": {
            "ended": s.n_ended,
            "good": s.n_good,
            "errors": {kind: {"count": error.count, "first": error.first} for kind, error in errors},
        },
        "wall_s": round(s.wall_s, 4),
        "requests_per_s": round(s.n_good / wall_s, 3),
        "input_tokens": s.input_tokens,
        "output_tokens": s.output_tokens,
        "tokens_counted_by": "usage" if s.is_counted_by_usage else "chunks",
        "output_tokens_per_s": round(s.output_tokens / wall_s, 2),
        "total_tokens_per_s": round((s.output_tokens + s.input_tokens) / wall_s, 2),
        "chunks": s.chunks,
        "tokens_per_chunk": round(s.output_tokens / s.chunks, 3) if s.chunks else None,
        "finish_reasons": s.finish_reasons,
        "client_cpu_share": round(s.client_cpu_s / wall_s, 3),
        "send_delay_ms": _summary(s.send_delay_s),
        "ttft_ms": _summary(s.ttft_s),
        "tpot_ms": _summary(s.tpot_s),
        "chunk_gap_ms": _summary(s.chunk_gap_s),
        "e2e_ms": _summary(s.e2e_s),
    }


def _summary(values: Sequence[float]) -> dict | None:
    summary = summarize(values)
    return summary.scaled(_MS) if summary else None


def show(title: str, result: dict, console: Console) -> None:
    """The figures for people: a table where a request was answered, a line, and the errors."""
    console.print(title, highlight=False, soft_wrap=True)
    requests = result["requests"]
    counted = f"{requests['good']} of {requests['ended']} requests in {result['wall_s']:.2f} s"
    if not requests["good"]:
        console.print(f"{counted}: none was answered", highlight=False)
    else:
        console.print(_table(result))
        console.print(
            f"{counted}: {result['requests_per_s']:.2f} requests/s, {result['output_tokens_per_s']:.1f} output tokens/s "
            f"({result['tokens_per_chunk']} tokens a chunk, counted by {result['tokens_counted_by']}; "
            f"client used {result['client_cpu_share']:.0%} of a core)"
        )
    for kind, error in requests["errors"].items():
        console.print(f"[red]{error['count']} x {kind}[/red]: {error['first']}", highlight=False)


def _table(result: dict) -> Table:
    table = Table()
    for column in ("", "mean", "p50", "p90", "p99", "max"):
        table.add_column(column, justify="left" if not column else "right")
    for name in LATENCIES:
        row = result.get(name)
        if row:
            table.add_row(name.replace("_ms", ", ms"), *(f"{row[key]:.2f}" for key in ("mean", "p50", "p90", "p99", "max")))
    return table
