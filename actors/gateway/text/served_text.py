"""The text model of a gateway: what its model folder has, with what the operator has changed."""

from __future__ import annotations

from pathlib import Path

from actors.gateway.settings import GatewaySettings
from actors.gateway.text.chat_template import TemplateError
from actors.gateway.text.reasoning_formats import AUTO
from actors.gateway.text.tokenizer import FolderText, TextModel, load_text_model
from messages.errors import ConfigError


def served_text(settings: GatewaySettings) -> TextModel:
    """The text model for these settings. Blocks for up to a second. Raises: ConfigError."""
    model, template = load_text_model(settings.model_folder), settings.chat_template
    if not isinstance(model, FolderText) or (not template and settings.reasoning == AUTO):
        return model
    if template and not any(mark in template for mark in ("{{", "{%")):  # a path
        try:
            template = Path(template).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"gateway.chat_template: expected a template or a file with one: {error}") from None
    try:
        return model.changed(template, settings.reasoning)
    except TemplateError as error:
        raise ConfigError(f"gateway.chat_template: {error}") from None
