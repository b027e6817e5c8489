"""The command line of `supervisor chat`. Heavy modules are imported when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click

from messages.outcomes import ExitCode
from supervisor.chat.talk_command import TalkCommand
from supervisor.operator.command_line import KEY_HINT, PORT, fail, fail_without_server
from supervisor.shell.interrupts import take_interrupts

_URL = "Server: ipc://PATH, tcp://HOST:PORT, or http://127.0.0.1:PORT. Default: that on port 8000, else a private one."
_MODEL = "Model, as for start: a running server that has it, else a private one."
_OPTION = "Any option of a request, such as temperature=0.2; may be repeated. /set changes them in the chat."
_SERVER_KEY = "Public key of a server over TCP that is encrypted; supervisor keys zeromq prints it."


def talk_flags(command: Any) -> Any:
    """Add the flags that `chat` and `run` share."""
    path = click.Path(path_type=Path)
    options = [
        click.option("--url", help=_URL),
        click.option("--port", type=PORT, help="HTTP port of a server on this machine."),
        click.option("--run-dir", type=path, help="Run directory of a server on this machine."),
        click.option("--api-key", envvar="OPENAI_API_KEY", help="Of a server that asks for one. Default: $OPENAI_API_KEY."),
        click.option("--server-key", help=_SERVER_KEY),
        click.option("--system", default="", help="System prompt."),
        click.option("--option", "-o", "assignments", multiple=True, metavar="NAME=VALUE", help=_OPTION),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command(cls=TalkCommand, short_help="Talk to a model in the terminal.")
@click.option("--model", help=_MODEL)
@talk_flags
@click.option("--history/--no-history", default=True, help="Keep the lines that are typed, for this user. Default: on.")
def chat(**flags: Any) -> None:
    """Talk to a model: to a running server, or to a private one that is started and ends with the chat.

    Answers are streamed. Ctrl-C stops an answer, Ctrl-D ends the chat; /help names the commands. An answer goes on when any
    process of the server dies. From a pipe each line is a text, and answers are printed plain.

    \b
    supervisor chat
        the server on port 8000, else the small packaged model
    supervisor chat --model /models/llama-3.1-8b -o temperature=0.2
    echo 'What is a tardigrade?' | supervisor chat

    \b
    Exit status:
      0  the chat was ended
      1  the last answer failed
      2  the command line cannot be used
      6  no server answers
    """
    converse(flags)


def converse(flags: dict[str, Any]) -> NoReturn:
    """Chat as the flags say, until it ends. Exits with its status."""
    take_interrupts()
    from messages.client import Client
    from supervisor.chat.answer_view import AnswerView
    from supervisor.chat.chat_loop import chat as talk
    from supervisor.chat.conversation import Conversation
    from supervisor.chat.request_options import assigned
    from supervisor.chat.server_watch import ServerEnding, watch_of

    with explained():
        conversation = Conversation(flags["system"], assigned(flags["assignments"]))
        is_terminal = sys.stdin.isatty()
        read_line = _lines(is_terminal, has_history=flags["history"])
        with opened(flags) as (server, key), Client(server.endpoint, **key) as client:
            conversation.options.setdefault("model", served_model(client.models(), flags))
            if is_terminal:
                print(f"{conversation.options['model']} at {server.text}. /help names the commands, Ctrl-D ends the chat.")
            is_well = talk(client, conversation, read_line, AnswerView, ServerEnding(watch_of(server.endpoint)))
    sys.exit(ExitCode.DONE if is_well else ExitCode.FAULT)


def _lines(is_terminal: bool, *, has_history: bool) -> Any:
    from supervisor.chat.chat_commands import command_names
    from supervisor.chat.chat_input import pipe_lines, terminal_lines
    from supervisor.directories.state_dir import default_state_dir

    if not is_terminal:
        return pipe_lines
    states = default_state_dir(0, os.environ, Path(os.path.expanduser("~"))).parent
    return terminal_lines(states / "chat_history" if has_history else None, command_names())


@contextmanager
def opened(flags: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The server that the flags name, and what a client of it is given; a private server ends afterwards."""
    from supervisor.chat.server_choice import chosen

    server = chosen(flags["url"], flags["port"], flags["run_dir"], flags["model"])
    try:
        yield server, {"api_key": flags["api_key"], "server_key": flags["server_key"]}
    finally:
        server.close()


def served_model(names: list[str], flags: dict[str, Any]) -> str:
    """The name by which to ask for the model of the flags; `names`: of the server. Raises: InvalidRequest if it is another
    server's, which only happens if the flags name the server too."""
    from gpu_workers.models.resolve import is_default_model
    from messages.errors import InvalidRequest

    wanted = flags["model"]
    if wanted in names:
        return wanted
    if wanted and is_default_model(wanted) and (packaged := list(filter(is_default_model, names))):
        return packaged[0]
    if wanted and any(flags[name] is not None for name in ("url", "port", "run_dir")):
        raise InvalidRequest(f"expected one of {', '.join(names)}, got {wanted}", "model")
    return names[0]


@contextmanager
def explained() -> Iterator[None]:
    """Exit with a status and one line for each error that a user can meet."""
    from messages.errors import ConfigError, InvalidRequest, Unavailable
    from supervisor.operator.calls import NoServer

    try:
        yield
    except (ConfigError, InvalidRequest) as error:
        key = f"; {KEY_HINT}" if str(error).startswith("Authorization: ") else ""
        fail(ExitCode.UNUSABLE, f"{error}{key}")
    except NoServer as error:
        fail_without_server(error)
    except Unavailable as error:
        fail(ExitCode.NO_SERVER, str(error))
