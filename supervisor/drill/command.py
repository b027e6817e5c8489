"""The command line of `supervisor drill`. Heavy modules are imported when it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import PORT, SECONDS

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_FOREIGN = {
    "--kill": "--fault kill:TARGET",
    "--target": "--fault kill:TARGET",
    "--pause": "--fault pause:TARGET:SECONDS",
    "--concurrency": "--streams",
    "--tokens": "--max-tokens",
    "--output-tokens": "--max-tokens",
    "--timeout": "--deadline",
}


@click.command(
    cls=CommandWithHints,
    foreign=_FOREIGN,
    short_help="Harm a server under load; report what was lost and how long streams paused.",
)
@click.argument("url", required=False)
@click.option(
    "--port", type=PORT, help="HTTP port of a server on this machine, without URL. Default: that of --run-dir, else 8000."
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="FAULT",
    help="kill:TARGET, pause:TARGET:SECONDS or run:COMMAND; may be repeated. TARGET: a role (worker, scheduler, gateway, ...),"
    " a name (worker/0.0), any, supervisor, parent, pid=NUMBER, match=REGEX (of a command"
    " line) or container=REGEX (of a name or image)."
    " Default: kill of worker, scheduler and gateway.",
)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Rounds of each fault.")
@click.option("--streams", type=click.IntRange(1), default=16, show_default=True, help="Streams at once.")
@click.option("--readers", type=click.IntRange(1), help="Processes that read them. Default: by the streams and the cores.")
@click.option("--prompt-words", type=click.IntRange(1), default=32, show_default=True, help="Words of a prompt.")
@click.option("--max-tokens", type=click.IntRange(2), default=256, show_default=True, help="Tokens of an answer.")
@click.option("--deadline", "deadline_s", type=SECONDS, default=120.0, show_default=True, help="Seconds for one stream.")
@click.option("--model", default="", help="Model to ask for. Default: the first one that the server names.")
@click.option("--api-key", default="", envvar="OPENAI_API_KEY", help="Sent as a bearer token. Default: $OPENAI_API_KEY.")
@click.option("--tls-ca", type=_FILE, help="HTTPS: who has signed the server's certificate (PEM). Default: the system's list.")
@click.option("--ignore-eos/--no-ignore-eos", default=True, show_default=True, help="Ask for all tokens.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the prompts and the choice of processes.")
@click.option(
    "--run-dir", type=click.Path(path_type=Path), help="Run directory of our own server. Default: that of the URL's port."
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the result here.")
@click.option("--svg", "svg_path", type=click.Path(dir_okay=False, path_type=Path), help="Draw the table here.")
def drill(**options: Any) -> None:
    """Stream from a server, harm it in the middle, and check every answer.

    URL is any OpenAI-compatible server; without it, ours on --port. Streams are greedy and do not reconnect; each answer is
    compared with what the same server gave before the first fault. Lost: cut short, or an error. Wrong: another text.
    Back: until a new request is answered; with as many streams as the server has slots, it waits for one of them.
    Calm: the p99 pause without a fault. Steps: the p99 pause in steps of our own server, as its metrics give their time.
    Healed: from the end of a pause until every stream has new text. If the target is the embedder, clients ask for embeddings
    instead, one call after the other.
    Ctrl-C or SIGTERM ends the drill; what was measured until then is reported.

    \b
    supervisor drill
        kill workers, schedulers and gateways of the server on port 8000
    supervisor drill http://127.0.0.1:8001 --fault 'kill:match=VLLM::EngineCore'
        the same for another server, by a process's command line
    supervisor drill http://127.0.0.1:8001 --fault 'kill:container=vllm'
        by the name or image of a container
    supervisor drill URL --fault 'run:systemctl kill -s KILL vllm'
        by a command

    \b
    Exit status:
      0  every stream was complete and right
      1  a stream was lost or wrong
      2  the command line cannot be used, or there is no such server or process
      3  a fault could not be inflicted in every round, or met no stream
    """
    from messages.errors import ConfigError
    from supervisor.drill.session import DrillOptions, run_session

    try:
        sys.exit(run_session(DrillOptions(**options)))
    except ConfigError as error:
        click.echo(f"supervisor: {error}", err=True)
        sys.exit(ExitCode.UNUSABLE)
