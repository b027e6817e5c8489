"""`supervisor cordon` and `supervisor uncordon`: one replica gets no new requests for a while."""

from __future__ import annotations

import re
from pathlib import Path

import click

from messages.outcomes import ExitCode
from supervisor.foreign.foreign_names import CommandWithHints
from supervisor.operator.command_line import SECONDS, fail, reach, run_dir_for, server_flags

_REPLICA = re.compile(r"(?:(?:scheduler|worker-gang|gang|replica)/)?(\d{1,4})|worker/(\d{1,4})\.\d+b?")


class ReplicaName(click.ParamType):
    """The number of a replica, or the name of something that it consists of."""

    name = "replica"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number. Raises: click.BadParameter."""
        found = _REPLICA.fullmatch(str(value))
        if found is None:
            self.fail(f"expected scheduler/N, worker-gang/N or N, got {value}", param, ctx)
        return int(found[1] or found[2])


@click.command(cls=CommandWithHints, short_help="Send no new requests to one replica.")
@click.argument("replica", type=ReplicaName(), metavar="worker-gang/N|scheduler/N|N")
@click.option("--drain", "is_draining", is_flag=True, help="Let what is there leave it, and wait until it is idle.")
@click.option("--deadline", "deadline_s", type=SECONDS, default=60.0, show_default=True, help="Seconds for what runs there.")
@server_flags
def cordon(port: int, run_dir: Path | None, replica: int, is_draining: bool, deadline_s: float) -> None:
    """Send no new requests to one replica, until `supervisor uncordon`. It outlasts restarts of all processes, but not of the
    whole server. What waits or runs there stays.

    With --drain what waits there goes to other replicas at once. What runs there may end, and goes to other replicas at the
    deadline. No request is lost, and no stream is interrupted.

    \b
    Exit status:
      0  the replica gets no new requests; with --drain: it is idle
      2  there is no such replica, or no other one for the requests
      6  no server was found
      7  with --drain: it is not idle yet, and still gets no new requests
    """
    from supervisor.operator import calls as operator_calls

    where = run_dir_for(port, run_dir)
    drain_s = deadline_s if is_draining else 0.0
    asked = {"is_cordoned": True, "is_draining": is_draining, "drain_s": drain_s}
    if refusal := reach(lambda: operator_calls.ask_cordon(where, replica, **asked)):
        fail(ExitCode.UNUSABLE, refusal)
    if not is_draining:
        click.echo(f"replica {replica} gets no new requests; supervisor uncordon {replica} takes that back")
    elif reach(lambda: operator_calls.wait_idle(where, replica, deadline_s)):
        click.echo(f"replica {replica} is idle and gets no new requests; supervisor uncordon {replica} takes that back")
    else:
        fail(ExitCode.DEADLINE, f"replica {replica} is not idle yet; supervisor status shows what it has")


@click.command(cls=CommandWithHints, short_help="Send requests to a replica again.")
@click.argument("replica", type=ReplicaName(), metavar="worker-gang/N|scheduler/N|N")
@server_flags
def uncordon(port: int, run_dir: Path | None, replica: int) -> None:
    """Send requests to a replica again after `supervisor cordon`.

    \b
    Exit status:
      0  the replica gets requests
      2  there is no such replica
      6  no server was found
    """
    from supervisor.operator import calls as operator_calls

    where = run_dir_for(port, run_dir)
    if refusal := reach(lambda: operator_calls.ask_cordon(where, replica, is_cordoned=False)):
        fail(ExitCode.UNUSABLE, refusal)
    click.echo(f"replica {replica} gets requests again")
