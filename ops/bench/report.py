"""From answers to figures: one JSON document, and the same as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console
from rich.table import Table

from ops.bench.completion_events import Answer
from ops.bench.load import Run
from ops.bench.statistics import summarize

_MS = 1e3
LATENCIES = ("ttft_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms")


def figures(run: Run) -> dict:
    """The figures of a run. Latencies in milliseconds; only requests without an error count in them."""
    good = [answer for answer in run.answers if not answer.error]
    tokens, counted_by = _count_tokens(good)
    chunks = sum(len(answer.text_s) for answer in good)
    wall_s = max(run.wall_s, 1e-9)
    result: dict = {
        "requests": {"ended": len(run.answers), "good": len(good), "errors": _errors(run.answers)},
        "wall_s": round(run.wall_s, 3),
        "requests_per_s": round(len(good) / wall_s, 3),
        "input_tokens": sum(answer.n_prompt for answer in good),
        "output_tokens": tokens,
        "tokens_counted_by": counted_by,
        "output_tokens_per_s": round(tokens / wall_s, 2),
        "total_tokens_per_s": round((tokens + sum(answer.n_prompt for answer in good)) / wall_s, 2),
        "chunks": chunks,
        "tokens_per_chunk": round(tokens / chunks, 3) if chunks else None,
        "finish_reasons": dict(Counter(answer.finish or "none" for answer in good)),
        "client_cpu_share": round(run.client_cpu_s / wall_s, 3),
        "send_delay_ms": _summary([answer.sent_s - answer.scheduled_s for answer in good if answer.sent_s]),
    }
    return result | _latencies(good)


def _latencies(good: Sequence[Answer]) -> dict:
    streamed = [answer for answer in good if answer.text_s]
    gaps = [after - before for answer in streamed for before, after in pairwise(answer.text_s)]
    per_token = [(answer.text_s[-1] - answer.text_s[0]) / (answer.n_tokens - 1) for answer in streamed if answer.n_tokens > 1]
    return {
        "ttft_ms": _summary([answer.text_s[0] - answer.scheduled_s for answer in streamed]),
        "tpot_ms": _summary(per_token),
        "chunk_gap_ms": _summary(gaps),
        "e2e_ms": _summary([answer.ended_s - answer.scheduled_s for answer in good]),
    }


def _summary(values: Sequence[float]) -> dict | None:
    summary = summarize(values)
    return summary.scaled(_MS) if summary else None


def _count_tokens(good: Sequence[Answer]) -> tuple[int, str]:
    """Tokens as the server counts them; where it never says, chunks stand in for them and the result says so."""
    if any(answer.n_tokens for answer in good):
        return sum(answer.n_tokens for answer in good), "usage"
    return sum(len(answer.text_s) for answer in good), "chunks"


def _errors(answers: Sequence[Answer]) -> dict:
    kinds = Counter(answer.error for answer in answers if answer.error)
    first = {kind: next(a.detail for a in answers if a.error == kind)[:200] for kind in kinds}
    return {kind: {"count": count, "first": first[kind]} for kind, count in kinds.most_common()}


def show(title: str, result: dict, console: Console) -> None:
    """The figures as a table for people."""
    table = Table(title=title, title_justify="left")
    for column in ("", "mean", "p50", "p90", "p99", "max"):
        table.add_column(column, justify="left" if not column else "right")
    for name in LATENCIES:
        row = result.get(name)
        if row:
            table.add_row(name.replace("_ms", ", ms"), *(f"{row[key]:.2f}" for key in ("mean", "p50", "p90", "p99", "max")))
    console.print(table)
    requests = result["requests"]
    console.print(
        f"{requests['good']} of {requests['ended']} requests in {result['wall_s']:.2f} s: "
        f"{result['requests_per_s']:.2f} requests/s, {result['output_tokens_per_s']:.1f} output tokens/s "
        f"({result['tokens_per_chunk']} tokens a chunk, counted by {result['tokens_counted_by']}; "
        f"client used {result['client_cpu_share']:.0%} of a core)"
    )
    for kind, error in requests["errors"].items():
        console.print(f"[red]{error['count']} x {kind}[/red]: {error['first']}", highlight=False)
