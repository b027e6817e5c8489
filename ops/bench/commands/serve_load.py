"""`serve-load`: what `supervisor bench` measures, with JSON on standard output, as all commands here."""

from __future__ import annotations

from typing import Any

import click

from supervisor.bench.command import load_options, plan_of
from supervisor.bench.serve_load import CONSOLE, measure, report


@click.command()
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="Where the server listens.")
@load_options
def command(url: str, out: str | None, **options: Any) -> None:
    """Measure a running server: rates, latencies, errors."""
    plan, title = plan_of(url, options)
    try:
        result = measure(plan)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    report(result, title, out, CONSOLE)
    if not result["requests"]["good"]:
        raise SystemExit(1)
