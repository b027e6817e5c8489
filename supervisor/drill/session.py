"""One call of `supervisor drill`: its options become a plan, its result a table and files."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from messages.errors import ConfigError
from messages.outcomes import ExitCode
from messages.run_dir import DEFAULT_PORT
from supervisor.drill.faults import parse_fault
from supervisor.drill.figures import as_json, beside_calm, rows_of
from supervisor.drill.readers import n_readers_for
from supervisor.drill.report import print_report, write_json, write_svg
from supervisor.drill.run import DrillPlan, DrillResult, run_drill
from supervisor.operator.calls import NoServer, ask_status
from supervisor.operator.server_search import local_url, on_this_machine, run_dir_with

_OWN_FAULTS = ("kill:worker", "kill:scheduler", "kill:gateway")


@dataclass(frozen=True, kw_only=True)
class DrillOptions:
    """The options of the command line; `command.py` says what they mean."""

    url: str | None
    port: int | None
    faults: tuple[str, ...]
    rounds: int
    streams: int
    prompt_words: int
    max_tokens: int
    deadline_s: float
    model: str
    api_key: str
    ignore_eos: bool
    seed: int
    run_dir: Path | None
    json_path: Path | None
    svg_path: Path | None
    tls_ca: Path | None = None
    readers: int | None = None


def run_session(options: DrillOptions) -> ExitCode:
    """Run the drill and report it. Raises: ConfigError.

    Returns FAULT when a stream was lost or wrong, else NOT_STARTED when a fault could not be inflicted in every round, or met
    no stream in any.
    """
    plan = plan_of(options)
    log = Console(stderr=True)
    try:
        result = asyncio.run(_run(plan, lambda line: log.print(line, highlight=False, markup=False, soft_wrap=True)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        log.print("ended before the first fault: nothing was measured")
        return ExitCode.NOT_STARTED
    rows = beside_calm(rows_of(result.rounds, result.reference.answers), result.step_ms)
    title = title_of(plan, result.model)
    print_report(rows, title, Console())
    if options.json_path is not None:
        write_json(as_json(rows, _facts(plan, result)), options.json_path)
    if options.svg_path is not None:
        write_svg(rows, title, options.svg_path)
    vain = [row.fault for row in rows if not row.streams]
    if vain:
        log.print(f"no stream was under way at {', '.join(vain)}: --max-tokens {4 * plan.max_tokens} makes them longer")
    if any(row.lost or row.wrong for row in rows):
        return ExitCode.FAULT
    return ExitCode.NOT_STARTED if result.stopped or vain else ExitCode.DONE


async def _run(plan: DrillPlan, say: Callable[[str], None]) -> DrillResult:
    """Run the drill; SIGTERM ends it as SIGINT does. Raises: ConfigError; CancelledError before the first fault."""
    work = asyncio.ensure_future(run_drill(plan, say))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    return await work


def url_of(url: str | None, port: int | None, run_dir: Path | None) -> str:
    """Where the server of these options listens: the URL, else what the server on the port says, else the one in the run
    directory.

    Raises: ConfigError when no server answers in the run directory.
    """
    if url:
        return url
    if port is not None or run_dir is None:
        port = DEFAULT_PORT if port is None else port
        return local_url(port, run_dir or run_dir_with(port))
    try:
        return on_this_machine(ask_status(run_dir).url)
    except NoServer as error:
        raise ConfigError(str(error)) from None


def title_of(plan: DrillPlan, model: str) -> str:
    """What was done, in one line."""
    of_each = "1 round of each fault" if plan.rounds == 1 else f"{plan.rounds} rounds of each fault"
    streams = "1 stream" if plan.streams == 1 else f"{plan.streams} streams"
    return f"{model} at {plan.url}: {streams} of {plan.max_tokens} tokens, {of_each}"


def plan_of(options: DrillOptions) -> DrillPlan:
    """The plan that the options ask for. Raises: ConfigError naming the option."""
    url = url_of(options.url, options.port, options.run_dir).rstrip("/").removesuffix("/v1")
    return DrillPlan(
        url=url,
        model=options.model,
        faults=tuple(parse_fault(text) for text in options.faults or _OWN_FAULTS),
        rounds=options.rounds,
        streams=options.streams,
        prompt_words=options.prompt_words,
        max_tokens=options.max_tokens,
        deadline_s=options.deadline_s,
        seed=options.seed,
        run_dir=(options.run_dir or run_dir_with(_port(url))).absolute(),
        ignores_end=options.ignore_eos,
        api_key=options.api_key,
        tls_ca=options.tls_ca,
        readers=options.readers or n_readers_for(options.streams),
    )


def _facts(plan: DrillPlan, result: DrillResult) -> dict[str, object]:
    """The conditions of a drill, for its JSON."""
    errors = {stream.error for one in result.rounds for stream in one.streams if stream.error}
    return {
        "url": plan.url,
        "model": result.model,
        "streams": plan.streams,
        "readers": plan.readers,
        "prompt_words": plan.prompt_words,
        "max_tokens": plan.max_tokens,
        "seed": plan.seed,
        "step_ms": round(result.step_ms, 3),
        "answers_not_the_same_twice": result.reference.n_unsteady,
        "answers_compared": len(result.reference.answers),
        "stopped": list(result.stopped),
        "errors": sorted(errors)[:16],
    }


def _port(url: str) -> int:
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
        return parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        fault = "" if ":" in url else f"; --fault kill:{url} names what is killed"
        raise ConfigError(f"url: expected http://HOST:PORT or https://HOST:PORT, got {url!r}{fault}") from None
