"""The command line of `supervisor bench`, whose options `python -m ops.bench serve-load` has too."""

from __future__ import annotations

import sys
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.foreign.load_tools import LOAD_FLAGS
from supervisor.operator.command_line import KEY_HINT, fail, reach, run_dir_for, server_flags

if TYPE_CHECKING:
    from supervisor.bench.serve_load import LoadPlan

_ENDPOINTS, _KINDS = click.Choice(["completions", "chat"]), click.Choice(["ids", "text"])


def load_options(command: Any) -> Any:
    """Add the options of a load measurement: all of `LoadPlan` but the address."""
    options = [
        click.option("--model", default="", help="Empty: the first that the server names."),
        click.option("--endpoint", type=_ENDPOINTS, default="completions", show_default=True),
        click.option("--prompt-kind", type=_KINDS, default="ids", show_default=True, help="ids go to completions only."),
        click.option(
            "--input", "input_lengths", default="128", show_default=True, help="Prompt tokens: N, uniform:LOW:HIGH, file:PATH."
        ),
        click.option("--output", "output_lengths", default="128", show_default=True, help="Tokens to generate, likewise."),
        click.option("--prompts", "prompts_file", default="", help="A file with a prompt on each line (text or JSON)."),
        click.option("--tokenizer", default="", help="A tokenizer.json, for texts of an exact length."),
        click.option("--vocabulary", default=10_000, show_default=True, help="Random ids are drawn below it."),
        click.option("--concurrency", default=8, show_default=True, help="Closed loop: clients side by side."),
        click.option("--rate", "rate_per_s", default=0.0, help="Above 0: open loop, requests per second (Poisson)."),
        click.option("--open-loop-limit", default=4096, show_default=True, help="Unanswered requests at most in an open loop."),
        click.option("--requests", type=int, help="Stop after so many; without this and --duration: 4 for each client."),
        click.option("--duration", "duration_s", type=float, help="Send nothing more after so many seconds."),
        click.option("--warmup", default=0, show_default=True, help="Requests before the measurement."),
        click.option("--temperature", default=0.0, show_default=True),
        click.option("--ignore-eos/--respect-eos", default=True, show_default=True),
        click.option("--extra", default="{}", help="More fields of the body, as JSON."),
        click.option("--processes", default=1, show_default=True, help="Load processes; a busy server needs several."),
        click.option("--seed", default=0, show_default=True),
        click.option("--timeout", "timeout_s", default=600.0, show_default=True, help="Seconds for one request."),
        click.option("--api-key", default="", envvar="OPENAI_API_KEY", help="Default: $OPENAI_API_KEY."),
        click.option("--out", help="Append the JSON here, on one line."),
    ]
    return reduce(lambda inner, option: option(inner), reversed(options), command)


def plan_of(url: str, options: dict[str, Any]) -> tuple[LoadPlan, str]:
    """The measurement that these options describe, and its title."""
    from supervisor.bench.serve_load import LoadPlan

    if options["requests"] is None and options["duration_s"] is None:
        options["requests"] = 4 * options["concurrency"]
    plan = LoadPlan(url=url if "://" in url else f"http://{url}", **options)
    loop = f"open loop, {plan.rate_per_s:g} requests/s" if plan.rate_per_s else f"closed loop, {plan.concurrency} clients"
    return plan, f"{plan.url}: {loop}, {plan.input_lengths} -> {plan.output_lengths} tokens"


@click.command(cls=CommandWithHints, foreign=LOAD_FLAGS, short_help="Measure a server: rates, first tokens, gaps, errors.")
@click.argument("url", required=False)
@load_options
@click.option("--json", "as_json", is_flag=True, help="Print the figures and the whole plan as JSON.")
@server_flags
def bench(url: str | None, out: str | None, as_json: bool, port: int, run_dir: Path | None, **options: Any) -> None:
    """Ask a running server for many streams, and show its rates and latencies. URL is any server that speaks OpenAI's API;
    without it, ours on --port.

    \b
    supervisor bench --concurrency 32 --input 512 --output 128
        32 clients side by side, each asks again when it has its answer
    supervisor bench http://127.0.0.1:8001 --rate 20 --duration 60 --endpoint chat
        another server, 20 chats a second by the clock

    A model without a tokenizer, or a server that takes no token ids: --prompt-kind text.

    \b
    Exit status:
      0  measured
      1  no request was answered
      2  an option cannot be used
      6  no server was found
    """
    from supervisor.bench.report import show
    from supervisor.bench.serve_load import measure, write_json

    plan, title = plan_of(_address(url) or _own_url(run_dir_for(port, run_dir)), options)
    try:
        result = measure(plan)
    except OSError as error:
        fail(ExitCode.NO_SERVER, f"{plan.url}: {_cause(error)}")
    except ValueError as error:
        fail(ExitCode.UNUSABLE, str(error))
    if out or as_json:
        write_json(result, out)
    if not as_json:
        from rich.console import Console

        show(title, result, Console())
    if not result["requests"]["good"]:
        sys.exit(ExitCode.FAULT)


def _address(url: str | None) -> str | None:
    """The address that was given. Exits as UNUSABLE for what vLLM's users say in its place."""
    if url in ("serve", "latency", "throughput"):
        fail(
            ExitCode.UNUSABLE, f"url: expected an address or nothing, got {url}; this measures a running server, as serve does"
        )
    return url


def _cause(error: OSError) -> str:
    """What went wrong, in the words of the system."""
    import ssl
    from http import HTTPStatus
    from urllib.error import HTTPError, URLError

    if isinstance(error, HTTPError):
        return f"{error}; {KEY_HINT}" if error.code == HTTPStatus.UNAUTHORIZED else str(error)
    inner = error.reason if isinstance(error, URLError) else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"{inner.verify_message}; SSL_CERT_FILE=FILE in the environment names who has signed its certificate"
    return str(getattr(inner, "strerror", None) or inner)


def _own_url(where: Path) -> str:
    """Where the server of a run directory listens. Exits as NO_SERVER when there is none."""
    from supervisor.operator.calls import ask_status
    from supervisor.operator.server_search import on_this_machine

    return on_this_machine(reach(lambda: ask_status(where)).url)
