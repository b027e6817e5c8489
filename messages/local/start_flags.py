"""The command line of `supervisor start` from keyword arguments. Pure; which options there are, the supervisor knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from messages.errors import ConfigError

_SET = "set"  # any keys of the configuration
_SET_IN_TEXT = re.compile(r"--set ([a-z_]+(?:\.[a-z_]+)+)=([^\s,;']+)")
_FLAG_IN_TEXT = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]*)")
_WORDS = {"true": "True", "false": "False"}


def start_flags(options: Mapping[str, Any]) -> list[str]:
    """The flags for `options`: `max_length=2048` is --max-length 2048, `speculation=False` is --no-speculation, and
    `set={"worker.threads": 2}` is --set worker.threads=2. None: the flag is not given.

    Raises: ConfigError for a value that no flag can have.
    """
    return [flag for name, value in options.items() if value is not None for flag in _flags(name, value)]


def _flags(name: str, value: Any) -> Iterator[str]:
    if name == _SET:
        if not isinstance(value, Mapping):
            raise ConfigError(f"set: expected a dict of keys of the configuration, got {value!r}")
        for key, one in value.items():
            yield from ("--set", f"{key}={_toml(key, one)}")
        return
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        yield f"--{flag}" if value else f"--no-{flag}"
    elif isinstance(value, str | int | float) or hasattr(value, "__fspath__"):
        yield from (f"--{flag}", str(value))
    else:
        raise ConfigError(f"{name}: expected a text, a number or a bool, got {value!r}")


def _toml(key: str, value: Any) -> str:
    """A value as TOML. Texts, numbers, bools and lists of these are written there as in JSON."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(key, str(name))} = {_toml(key, one)}" for name, one in value.items()) + "}"
    try:
        text = json.dumps(str(value) if hasattr(value, "__fspath__") else value, ensure_ascii=False)
        return text.replace("\x7f", "\\u007f")  # the only character that JSON allows in a text, and TOML does not
    except TypeError:
        raise ConfigError(f"set: {key}: expected a text, a number, a bool, a list or a dict, got {value!r}") from None


def in_keywords(said: str) -> str:
    """What the server has said of its flags, in the keyword arguments for which they stand: `max_length` for --max-length, and
    `set={"worker.cuda_graphs": False}`. A text that names a command of a shell stays as it is."""
    if "supervisor " in said:
        return said
    said = _SET_IN_TEXT.sub(lambda found: f'set={{"{found[1]}": {_WORDS.get(found[2], found[2])}}}', said)
    return _FLAG_IN_TEXT.sub(lambda found: found[1].replace("-", "_"), said)
