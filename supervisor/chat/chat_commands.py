"""The commands of a chat: lines that begin with a slash. Pure: each changes the conversation and says what to print."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from messages.errors import InvalidRequest
from supervisor.chat.conversation import Conversation
from supervisor.chat.request_options import SETTABLE, option_of
from supervisor.foreign.chat_habits import hint, translated

_OFF = "off"


@dataclass(frozen=True)
class CommandResult:
    """What a command has to say, and whether the chat ends."""

    text: str = ""
    is_end: bool = False


def run_command(line: str, conversation: Conversation) -> CommandResult:
    """Carry out a line that begins with a slash."""
    if said := hint(line):
        return CommandResult(said)
    line = translated(line)
    word, _, rest = line[1:].strip().partition(" ")
    word = _ALIASES.get(word, word)
    if word in _COMMANDS:
        return _COMMANDS[word].run(rest.strip(), conversation)
    close = get_close_matches(word, _COMMANDS, n=1)
    return CommandResult(f"/{word}: unknown command{f'; did you mean /{close[0]}?' if close else ''}; /help names all of them")


def command_names() -> list[str]:
    """All commands, with their slash."""
    return [f"/{name}" for name in _COMMANDS]


def _system(text: str, conversation: Conversation) -> CommandResult:
    if text:
        conversation.system = "" if text == _OFF else text
    return CommandResult(f"system prompt: {conversation.system}" if conversation.system else "no system prompt")


def _set(text: str, conversation: Conversation) -> CommandResult:
    name, _, value = text.partition(" ")
    if not name:
        given = [f"{name} {json.dumps(value)}" for name, value in conversation.options.items()]
        return CommandResult("\n".join(given) or f"nothing is set; there are {', '.join(SETTABLE)}")
    if not value.strip():
        dropped = conversation.options.pop(name, None)
        return CommandResult(f"{name} {'has its default again' if dropped is not None else 'is not set'}")
    try:
        conversation.options[name] = option_of(name, value.strip())
    except InvalidRequest as error:
        return CommandResult(str(error))
    return CommandResult(f"{name} {json.dumps(conversation.options[name])}")


def _stats(_: str, conversation: Conversation) -> CommandResult:
    return CommandResult(conversation.statistics())


def _clear(_: str, conversation: Conversation) -> CommandResult:
    conversation.clear()
    return CommandResult("the conversation is forgotten")


def _help(_: str, __: Conversation) -> CommandResult:
    lines = [f"{f'/{name} {command.takes}'.rstrip():<20} {command.says}" for name, command in _COMMANDS.items()]
    return CommandResult("\n".join([*lines, *_KEYS]))


def _exit(_: str, __: Conversation) -> CommandResult:
    return CommandResult(is_end=True)


@dataclass(frozen=True)
class _ChatCommand:
    run: Callable[[str, Conversation], CommandResult]
    takes: str
    says: str


_COMMANDS: Mapping[str, _ChatCommand] = {
    "system": _ChatCommand(_system, "[TEXT]", "show or set the system prompt; off: none"),
    "set": _ChatCommand(_set, "[NAME [VALUE]]", "show, set or unset an option, such as temperature 0.2"),
    "stats": _ChatCommand(_stats, "", "figures of the last answer, and of all"),
    "clear": _ChatCommand(_clear, "", "forget the conversation"),
    "help": _ChatCommand(_help, "", "this list"),
    "exit": _ChatCommand(_exit, "", "leave, as Ctrl-D does"),
}
_ALIASES = {"bye": "exit", "quit": "exit", "?": "help"}  # as other chats name them
_KEYS = (
    '"""                  begins and ends a text of several lines; on a terminal also Alt-Enter',
    "Ctrl-C               stops the answer",
)
