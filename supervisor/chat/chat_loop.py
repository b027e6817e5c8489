"""The loop of a chat: read a text, stream its answer, keep both. Ctrl-C stops the answer, Ctrl-D ends the chat."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from messages.errors import ClientError
from supervisor.chat.answer_view import AnswerView
from supervisor.chat.chat_commands import run_command
from supervisor.chat.chat_input import ReadLine, read_text
from supervisor.chat.conversation import ChatFigures, Conversation
from supervisor.chat.server_watch import ServerEnding

if TYPE_CHECKING:
    from messages.client import Client


def chat(
    client: Client,
    conversation: Conversation,
    read_line: ReadLine,
    view: Callable[[], AnswerView],
    ending: ServerEnding | None = None,
) -> bool:
    """Chat until the input ends or /exit comes. Returns False if the last answer failed. `ending`: watches the server.

    Raises: Unavailable when the server has ended."""
    ending = ending or ServerEnding()
    is_well = True
    while True:
        try:
            text = read_text(read_line)
        except KeyboardInterrupt:  # of a line that is being written
            continue
        except EOFError:
            return is_well
        if text.startswith("/"):
            result = run_command(text, conversation)
            if result.is_end:
                return is_well
            print(result.text, flush=True)
        elif text:
            with suppress(KeyboardInterrupt):  # a second one, while the first is carried out
                is_well = ask(client, conversation, text, view(), ending)


def ask(client: Client, conversation: Conversation, text: str, view: AnswerView, ending: ServerEnding) -> bool:
    """Ask `text` and show the answer. Returns False if it failed; then the conversation is as it was before.

    Raises: Unavailable when the server has ended."""
    is_whole = False
    pieces = client.stream(messages=conversation.asked(text), **conversation.options)
    try:
        with ending.watched(client.close):
            for piece in pieces:
                view.show(piece)
        is_whole = True
    except KeyboardInterrupt:
        pass
    except ClientError as error:
        view.end()
        if ending.has_ended:
            raise
        print(f"supervisor: {error}", file=sys.stderr, flush=True)
        return False
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:  # cancels what is still being computed
            close()
    view.end()
    conversation.answered(text, view.text, ChatFigures(view.n_tokens, view.first_s, view.total_s, is_whole))
    return True
