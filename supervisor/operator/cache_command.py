"""`supervisor cache reset`: a running server forgets cached prefixes and kept answers."""

from __future__ import annotations

from pathlib import Path

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import GroupWithHints
from supervisor.operator.command_line import fail, reach, run_dir_for, server_flags


@click.group(cls=GroupWithHints, short_help="Forget what a running server has cached.")
def cache() -> None:
    """The caches of a running server. supervisor status shows what is in them.

    \b
    Exit status:
      0  done
      2  a condition cannot be used
      6  no server was found
      7  a process of the server did not answer in time
    """


@cache.command(short_help="Forget cached prefixes and kept answers.")
@click.option("--caller", help="Only of the caller that gateway.caller_header names so.")
@click.option("--prompt", help="Only of prompts that begin with this text.")
@click.option(
    "--older-than", "older_than_s", type=click.FloatRange(min=0.0), help="Only what was computed longer ago, in seconds."
)
@click.option("--model", help="Only of this model: the main or the fallback one.")
@server_flags
def reset(
    port: int, run_dir: Path | None, caller: str | None, prompt: str | None, older_than_s: float | None, model: str | None
) -> None:
    """Forget what meets all conditions that are given; everything without one. Requests in progress go on.

    \b
    Exit status:
      0  it is forgotten
      2  a condition cannot be used
      6  no server was found
      7  a process of the server did not answer in time; the others have forgotten
    """
    from messages.client import Client
    from messages.errors import ClientError, InvalidRequest
    from messages.run_dir import zeromq_endpoint
    from supervisor.operator.calls import check_running

    where = run_dir_for(port, run_dir)
    reach(lambda: check_running(where))
    try:
        with Client(zeromq_endpoint(where)) as client:
            done = client.reset_cache(caller=caller, prompt=prompt, older_than_s=older_than_s, model=model)
    except InvalidRequest as error:
        fail(ExitCode.UNUSABLE, str(error))
    except ClientError as error:
        fail(ExitCode.DEADLINE, str(error))
    click.echo(f"{done.pages} pages and {done.answers} answers are forgotten")
