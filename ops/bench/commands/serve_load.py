"""`serve-load`: the options of a load measurement."""

from __future__ import annotations

from typing import Any

import click

from ops.bench.serve_load import CONSOLE, LoadPlan, measure, report


@click.command(context_settings={"show_default": True})
@click.option("--url", default="http://127.0.0.1:8000", help="Where the server listens.")
@click.option("--model", default="", help="Empty: the first that the server names.")
@click.option("--endpoint", type=click.Choice(["completions", "chat"]), default="completions")
@click.option("--prompt-kind", type=click.Choice(["ids", "text"]), default="ids", help="ids go to completions only.")
@click.option("--input", "input_lengths", default="128", help="Prompt tokens: N, uniform:LOW:HIGH, file:PATH.")
@click.option("--output", "output_lengths", default="128", help="Tokens to generate, likewise.")
@click.option("--prompts", "prompts_file", default="", help="A file with a prompt on each line (text or JSON).")
@click.option("--tokenizer", default="", help="A tokenizer.json, for texts of an exact length.")
@click.option("--vocabulary", default=10_000, help="Random ids are drawn below it.")
@click.option("--concurrency", default=8, help="Closed loop: clients side by side.")
@click.option("--rate", "rate_per_s", default=0.0, help="Above 0: open loop, requests per second (Poisson).")
@click.option("--open-loop-limit", default=4096, help="Unanswered requests at most in an open loop.")
@click.option("--requests", type=int, help="Stop after so many; without this and --duration: 4 for each client.")
@click.option("--duration", "duration_s", type=float, help="Send nothing more after so many seconds.")
@click.option("--warmup", default=0, help="Requests before the measurement.")
@click.option("--temperature", default=0.0)
@click.option("--ignore-eos/--respect-eos", default=True)
@click.option("--extra", default="{}", help="More fields of the body, as JSON.")
@click.option("--processes", default=1, help="Load processes that share the work; a busy server needs several.")
@click.option("--seed", default=0)
@click.option("--timeout", "timeout_s", default=600.0, help="Seconds for one request.")
@click.option("--api-key", default="", envvar="OPENAI_API_KEY")
@click.option("--out", help="Append the JSON here, on one line, instead of printing it.")
def command(out: str | None, **options: Any) -> None:
    """Measure a running server: rates, latencies, errors."""
    if options["requests"] is None and options["duration_s"] is None:
        options["requests"] = 4 * options["concurrency"]
    plan = LoadPlan(**options)
    loop = f"open loop, {plan.rate_per_s:g} requests/s" if plan.rate_per_s else f"closed loop, {plan.concurrency} clients"
    try:
        result = measure(plan)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    report(result, f"{plan.url}: {loop}, {plan.input_lengths} -> {plan.output_lengths} tokens", out, CONSOLE)
    if not result["requests"]["good"]:
        raise SystemExit(1)
