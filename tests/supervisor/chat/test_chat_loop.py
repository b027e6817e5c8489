"""The loop of a chat over a client that answers at once: input, interruption, errors, and what is shown."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from messages.client import Client
from messages.client.answer import Piece
from messages.errors import ClientError, Overloaded
from messages.public import AnswerPart, Channel
from supervisor.chat.answer_view import AnswerView
from supervisor.chat.chat_input import MORE, PROMPT, ReadLine, read_text
from supervisor.chat.chat_loop import chat
from supervisor.chat.conversation import Conversation


class ScriptedClient(Client):
    """Streams the pieces of a script, and raises the errors in it."""

    def __init__(self, *script: str | BaseException) -> None:
        self._script = script  # and nothing of a real client
        self.asked: list[Any] = []
        self.n_closed = 0

    def stream(self, prompt: Any = None, *, tokens: Any = None, messages: Any = None, **options: Any) -> Iterator[Piece]:
        """The script."""
        self.asked.append((messages, options))
        try:
            for index, step in enumerate(self._script):
                if isinstance(step, BaseException):
                    raise step
                yield piece_of(index, step)
        finally:
            self.n_closed += 1


class Screen(io.StringIO):
    """What a terminal is given."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def piece_of(index: int, text: str, *parts: AnswerPart) -> Piece:
    return Piece(index, [index], text, None, parts=parts)


def typed(*lines: str | type[BaseException]) -> ReadLine:
    left = iter(lines)

    def read(_: str) -> str:
        line = next(left, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read


def run(client: ScriptedClient, *lines: str | type[BaseException]) -> tuple[bool, Conversation]:
    conversation = Conversation(options={"max_tokens": 8})
    return chat(client, conversation, typed(*lines), lambda: AnswerView(io.StringIO())), conversation


def test_texts_are_asked_with_the_conversation_so_far() -> None:
    client = ScriptedClient("a", "b")
    is_well, conversation = run(client, "one", "", "/set max_tokens 9", "two", "/exit", "three")
    assert is_well
    assert [[message["content"] for message in messages] for messages, _ in client.asked] == [["one"], ["one", "ab", "two"]]
    assert [options["max_tokens"] for _, options in client.asked] == [8, 9]
    assert [figures.is_whole for figures in conversation.figures] == [True, True]


def test_an_interruption_stops_the_answer_and_not_the_chat() -> None:
    client = ScriptedClient("a", KeyboardInterrupt())
    is_well, conversation = run(client, KeyboardInterrupt, "one", "two")
    assert is_well
    assert len(client.asked) == client.n_closed == 2, "the request is cancelled each time"
    assert conversation.turns[1] == {"role": "assistant", "content": "a"}
    assert not conversation.figures[0].is_whole


@pytest.mark.parametrize("error", [Overloaded("full", 1.0), ClientError("lost")])
def test_an_error_is_told_and_the_conversation_is_as_before(error: ClientError, capsys: pytest.CaptureFixture[str]) -> None:
    is_well, conversation = run(ScriptedClient("a", error), "one")
    assert not is_well
    assert conversation.turns == []
    assert capsys.readouterr().err == f"supervisor: {error}\n"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["  one  "], "one"),
        (['"""', "a", " b", '"""'], "a\n b"),
        (['"""a', 'b"""'], "a\nb"),
        (['"""a"""'], "a"),
        (["a\nb"], "a\nb"),
    ],
)
def test_a_text_may_have_several_lines(lines: list[str], text: str) -> None:
    prompts: list[str] = []
    read_line: Callable[[str], str] = typed(*lines)

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return read_line(prompt)

    assert read_text(read) == text
    assert prompts == [PROMPT, *[MORE] * (len(lines) - 1)]


def show(out: io.StringIO) -> str:
    view = AnswerView(out, iter([0.0, 2.0, 3.0, 4.0]).__next__)
    view.show(piece_of(0, "", AnswerPart(channel=Channel.REASONING, text="why\x1b[31m")))
    view.show(piece_of(1, "so\x07\x9b2J\tit is\n"))
    view.end()
    assert (view.text, view.n_tokens, view.first_s, view.total_s) == ("so\x07\x9b2J\tit is\n", 2, 2.0, 3.0)
    return out.getvalue()


def test_a_terminal_gets_dimmed_reasoning_and_no_control_characters() -> None:
    assert show(Screen()) == "\x1b[2mwhy[31m\x1b[0m\n\nso2J\tit is\n\n"


def test_a_pipe_gets_the_text_as_it_is() -> None:
    assert show(io.StringIO()) == "so\x07\x9b2J\tit is\n\n"
