"""Renders conversations as prompts with the model's own Jinja template, in a sandbox without access to anything else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.meta
import jinja2.nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from actors.gateway.text.template_options import PLAIN, TemplateOptions
from actors.gateway.text.time_limit import TooSlow, processor_limit
from messages.errors import ConfigError
from messages.wire.message import MAX_TEXT_CHARACTERS

LIMIT_S = 1.0  # of a processor for one conversation; the event loop stands still meanwhile


class TemplateError(ValueError):
    """The template is invalid, refuses this conversation, or fails on it."""


def read_template(setting: str) -> str:
    """The Jinja source that `gateway.chat_template` means: the setting itself, or what the file of that name has. Raises:
    ConfigError when it is neither."""
    if not setting or any(mark in setting for mark in ("{{", "{%")):
        return setting
    try:
        return Path(setting).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        got = f"{Path(setting).absolute()}: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(f"gateway.chat_template: expected a template or a file with one, got {got}") from None


class ChatTemplate:
    """One compiled template. `literals`: the string constants in its expressions. `knows_tools`: it shows tools to the model.

    Args:
        source: the Jinja source.
        special_tokens: texts of bos_token, eos_token, ... by these names.

    Raises: TemplateError when the source cannot be compiled.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._special_tokens = dict(special_tokens)
        try:
            self._template = environment.from_string(source)
            parsed = environment.parse(source)
            constants = parsed.find_all(jinja2.nodes.Const)
        except jinja2.TemplateError as error:
            raise TemplateError(f"chat template: {error}") from None
        self.literals = frozenset(node.value for node in constants if isinstance(node.value, str))
        self.knows_tools = "tools" in jinja2.meta.find_undeclared_variables(parsed)

    def render(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = PLAIN,
    ) -> str:
        """The prompt for these turns ({"role", "content"}), up to where the assistant's answer starts. `tools`: in OpenAI's
        format, for a template that knows tools.

        Raises: TemplateError when the template fails, refuses or takes more than `LIMIT_S`, or the prompt is longer than
        `MAX_TEXT_CHARACTERS`.
        """
        names: dict[str, Any] = {"tools": list(tools) or None, "documents": None, **options.variables}
        has_head = options.has_answer_head and not options.continues_last
        try:
            with processor_limit(LIMIT_S):
                prompt = self._template.render(
                    **names, messages=list(turns), add_generation_prompt=has_head, **self._special_tokens
                )
        except TemplateError:
            raise
        except TooSlow:
            raise TemplateError(
                f"the model's chat template takes more than {LIMIT_S:g} s of a processor for this conversation"
            ) from None
        except Exception as error:  # a template is a program; any error it raises is about these turns
            raise TemplateError(f"the model's chat template cannot render this conversation: {error}"[:2000]) from None
        if options.continues_last:
            prompt = _up_to(prompt, str(turns[-1]["content"]))
        if len(prompt) > MAX_TEXT_CHARACTERS:
            raise TemplateError(f"prompt: expected at most {MAX_TEXT_CHARACTERS} characters, got {len(prompt)}")
        return prompt


def _up_to(prompt: str, last: str) -> str:
    """The prompt up to the end of the last message, whose text the template may have stripped. Raises: TemplateError."""
    for text in (last, last.rstrip(), last.strip()):
        if text and (at := prompt.rfind(text)) >= 0:
            return prompt[: at + len(text)]
    raise TemplateError("the model's chat template does not show the last message as it is, so it cannot be continued")


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
