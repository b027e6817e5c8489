"""The command line of `supervisor run`: one answer, for people and for scripts. Heavy modules are imported when it runs."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from messages.outcomes import ExitCode
from supervisor.chat.command import converse, explained, opened, served_model, talk_flags
from supervisor.chat.talk_command import TalkCommand
from supervisor.operator.command_line import fail

if TYPE_CHECKING:
    from messages.client import Client
    from messages.client.answer import Answer

_PIPE = "-"


@click.command(cls=TalkCommand, short_help="Ask a model one thing.")
@click.argument("model")
@click.argument("prompt", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as one line of JSON.")
@click.option("--raw", is_flag=True, help="The text is a prompt to go on with, and no message of a conversation.")
@click.option("--max-tokens", type=click.IntRange(1), help="Tokens of the answer at most. Default: the server's.")
@click.option("--temperature", type=click.FloatRange(0.0), help="0: always the likeliest token. Default: the model's.")
@click.option("--seed", type=int, help="Of the sampling. Default: another one each time.")
@click.option("--verbose", is_flag=True, help="Print tokens and times after the answer, on standard error.")
@talk_flags
def run(model: str, prompt: str | None, as_json: bool, raw: bool, verbose: bool, **flags: Any) -> None:
    """Ask MODEL for an answer to PROMPT, and print it as it comes. Without PROMPT, on a terminal: chat with it.

    A running server that has this model answers, else a private one, which ends afterwards. What comes through a pipe follows
    PROMPT, or is it. MODEL is named as for start, or as GET /v1/models does.

    \b
    supervisor run smollm2 'What is a tardigrade?' --max-tokens 64
    supervisor run smollm2 'Summarise in one sentence:' < notes.txt
    supervisor run smollm2 --raw 'The hardiest animal on earth is' --temperature 0 --json

    \b
    Exit status:
      0  the answer was printed
      1  the answer failed or was stopped by Ctrl-C
      2  the command line cannot be used
      6  no server answers
    """
    from messages.client import Client
    from supervisor.chat.request_options import assigned
    from supervisor.chat.server_watch import ServerEnding, watch_of

    given = tuple(f"{name}={flags[name]}" for name in ("max_tokens", "temperature", "seed") if flags[name] is not None)
    flags |= {"model": model, "assignments": (*flags["assignments"], *given)}
    if prompt is None and not (as_json or raw or verbose) and sys.stdin is not None and sys.stdin.isatty():
        converse({**flags, "history": True})
    with explained():
        text = _text(prompt)
        asked = _asked(text, flags["system"], is_raw=raw)
        options = assigned(flags["assignments"])
        with opened(flags) as (server, key), Client(server.endpoint, **key) as client:
            options.setdefault("model", served_model(client.models(), flags))
            ending = ServerEnding(watch_of(server.endpoint))
            with ending.watched(client.close):
                sys.exit(_ask(client, asked, options, as_json=as_json, is_verbose=verbose))


def _text(prompt: str | None) -> str:
    """The prompt with what comes through a pipe. Raises: InvalidRequest without either."""
    from messages.errors import InvalidRequest

    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    parts = [part for part in ("" if prompt == _PIPE else prompt or "", piped.rstrip("\n")) if part.strip()]
    if not parts:
        raise InvalidRequest(
            "expected a text as the second argument or from a pipe, got none; `supervisor chat` asks for it", "prompt"
        )
    return "\n\n".join(parts)


def _asked(text: str, system: str, *, is_raw: bool) -> dict[str, Any]:
    """What the client is asked. Raises: InvalidRequest."""
    from messages.errors import InvalidRequest
    from supervisor.chat.conversation import Conversation

    if is_raw and system:
        raise InvalidRequest("expected none beside --raw, which takes a plain prompt", "system")
    return {"prompt": text} if is_raw else {"messages": Conversation(system).asked(text)}


def _ask(client: Client, asked: dict[str, Any], options: dict[str, Any], *, as_json: bool, is_verbose: bool) -> int:
    """Print the answer; returns the exit status."""
    from messages.errors import ClientError, InvalidRequest, Unavailable

    try:
        if as_json:
            began_s = time.monotonic()
            calls = (
                client.chat(asked["messages"], **options)
                if "messages" in asked
                else client.generate(asked["prompt"], **options)
            )
            print(json.dumps(_as_json(calls, options["model"], time.monotonic() - began_s), ensure_ascii=False))
        else:
            _stream(client, asked, options, is_verbose=is_verbose)
    except KeyboardInterrupt:
        return ExitCode.FAULT
    except (InvalidRequest, Unavailable):
        raise
    except ClientError as error:
        fail(ExitCode.FAULT, str(error))
    return ExitCode.DONE


def _stream(client: Client, asked: dict[str, Any], options: dict[str, Any], *, is_verbose: bool) -> None:
    from supervisor.chat.answer_view import AnswerView
    from supervisor.chat.conversation import ChatFigures

    view = AnswerView()
    try:
        for piece in client.stream(**asked, **options):
            view.show(piece)
    finally:
        view.end()
    if is_verbose:
        print(ChatFigures(view.n_tokens, view.first_s, view.total_s, is_whole=True).text(), file=sys.stderr)


def _as_json(answer: Answer, model: str, total_s: float) -> dict[str, Any]:
    return {
        "model": answer.fallback_model or model,
        "text": answer.text,
        "reasoning": answer.reasoning,
        "tool_calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in answer.tool_calls],
        "reason": answer.reason,
        "prompt_tokens": answer.n_prompt,
        "cached_tokens": answer.n_cached,
        "tokens": len(answer.tokens),
        "total_s": round(total_s, 3),
        "request": answer.request,
    }
