"""The commands of a chat, the options that it sets, and what it keeps of a conversation."""

from __future__ import annotations

import pytest

from messages.errors import InvalidRequest
from supervisor.chat.chat_commands import command_names, run_command
from supervisor.chat.chat_input import read_text
from supervisor.chat.conversation import ChatFigures, Conversation
from supervisor.chat.request_options import assigned


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/set temperature 0.2", "temperature 0.2"),
        ('/set stop ["a", "b"]', 'stop ["a", "b"]'),
        ("/set stop end", 'stop "end"'),
        ("/set model 7", 'model "7"'),
        ("/set temperature", "temperature has its default again"),
        ("/set top_p", "top_p is not set"),
        ("/set temperature -1", "temperature: expected a number >= 0.0, got -1"),
        ("/set temprature 1", "temprature: expected an option of a request, got temprature; did you mean temperature?"),
        ("/set n 2", "n: expected one of "),
        ("/system Be short.", "system prompt: Be short."),
        ("/system off", "no system prompt"),
        ("/set system Be short.", "system prompt: Be short."),
        ('/set system """Be\nshort."""', "system prompt: Be\nshort."),
        ("/set parameter num_predict 8", "max_tokens 8"),
        ("/set parameter  temperature  0.2", "temperature 0.2"),
        ("/set parameter num_ctx 4096", "/set parameter num_ctx: a server has one length of context: supervisor start"),
        ("/set format json", 'response_format {"type": "json_object"}'),
        ("/set nothink", 'chat_template_kwargs {"enable_thinking": false}'),
        ("/set verbose", "/set verbose: /stats shows the figures of the last answer"),
        ("/show system", "no system prompt"),
        ("/show parameters", "temperature 1.0"),
        ("/show info", "/show: supervisor show MODEL"),
        ("/load llama3.2", "/load: a chat has the model it began with"),
        ("/stats", "no answer yet"),
        ("/clear", "the conversation is forgotten"),
        ("/sistem", "/sistem: unknown command; did you mean /system?"),
        ("/", "/: unknown command; /help names all of them"),
    ],
)
def test_a_command_says_what_it_did(line: str, said: str) -> None:
    result = run_command(line, Conversation(options={"temperature": 1.0}))
    assert result.text.startswith(said)
    assert not result.is_end


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["  one line "], "one line"),
        (['"""two', 'lines"""'], "two\nlines"),
        (['"""', "two", "lines", '"""'], "two\nlines"),
        (['/set system """You are', 'brief."""'], "/set system You are\nbrief."),
        (['say """ twice'], 'say """ twice'),
    ],
)
def test_a_text_of_several_lines_stands_between_quotes(typed: list[str], text: str) -> None:
    lines = iter(typed)
    assert read_text(lambda _: next(lines)) == text


def test_the_next_request_has_what_was_set_and_said() -> None:
    conversation = Conversation()
    run_command("/system Be short.", conversation)
    run_command("/set max_tokens 8", conversation)
    conversation.answered("one", "two", ChatFigures(3, 0.5, 1.5, is_whole=False))
    said = [(message["role"], message["content"]) for message in conversation.asked("three")]
    assert said == [("system", "Be short."), ("user", "one"), ("assistant", "two"), ("user", "three")]
    assert conversation.options == {"max_tokens": 8}
    assert conversation.statistics() == ("3 tokens (stopped), first after 0.50 s, 2.0 tokens/s\n1 answer: 3 tokens in 1.5 s")
    run_command("/clear", conversation)
    assert [message["content"] for message in conversation.asked("four")] == ["Be short.", "four"]
    assert conversation.options == {"max_tokens": 8}


def test_help_names_every_command_and_exit_ends() -> None:
    text = run_command("/help", Conversation()).text
    assert all(name in text for name in command_names())
    assert run_command("/?", Conversation()).text == text
    assert all(run_command(line, Conversation()).is_end for line in ("/exit", "/bye", "/quit"))


def test_options_of_a_command_line() -> None:
    assert assigned(("temperature=0", "stop=a=b", 'response_format={"type": "json_object"}')) == {
        "temperature": 0,
        "stop": "a=b",
        "response_format": {"type": "json_object"},
    }
    with pytest.raises(InvalidRequest, match="option: expected NAME=VALUE, got 'temperature'"):
        assigned(("temperature",))
