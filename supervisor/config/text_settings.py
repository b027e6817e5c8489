"""Checks texts that processes would refuse only after the start: those that are not UTF-8, and in `[gateway]` sampling, chat
template, reasoning and TLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import cast

import msgspec

from actors.gateway.settings import GatewaySettings
from messages.errors import ConfigError

_DEFAULT = GatewaySettings()


def encoding_errors(table: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    """The errors of texts that are not UTF-8. Python reads the other bytes of a command line as surrogates, and no message to a
    process, nor a file of the run directory, can hold those."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from encoding_errors(cast(Mapping[str, object], value), f"{prefix}{key}.")
        elif isinstance(value, str) and value.encode(errors="ignore").decode() != value:
            yield f"{prefix}{key}: expected text in UTF-8, and a locale that reads it, got {value!a}"


def text_errors(settings: GatewaySettings) -> Iterator[str]:
    """The errors of these keys. The model's own files are not read, and nothing is imported for a key with its default."""
    checks: list[Callable[[GatewaySettings], None]] = []
    if settings.default_sampling:
        checks.append(_check_sampling)
    if settings.reasoning != _DEFAULT.reasoning:
        checks.append(_check_reasoning)
    if settings.chat_template:
        checks.append(_check_template)
    for check in checks:
        try:
            check(settings)
        except ConfigError as error:
            yield str(error)


def tls_errors(settings: GatewaySettings) -> Iterator[str]:
    """The error of the files of TLS, if they cannot be used."""
    from actors.gateway.tls.certificates import tls_context

    try:
        tls_context(settings)
    except ConfigError as error:
        yield str(error)


def _check_sampling(settings: GatewaySettings) -> None:
    from actors.gateway.admission.sampling_defaults import sampling_defaults

    sampling_defaults(msgspec.structs.replace(settings, generation_config="none"))


def _check_reasoning(settings: GatewaySettings) -> None:
    from actors.gateway.text.reasoning_formats import marks_of

    marks_of(settings.reasoning, "")


def _check_template(settings: GatewaySettings) -> None:
    from actors.gateway.text.chat_template import ChatTemplate, TemplateError, read_template

    try:
        ChatTemplate(read_template(settings.chat_template), {})
    except TemplateError as error:
        raise ConfigError(f"gateway.chat_template: {error}") from None
