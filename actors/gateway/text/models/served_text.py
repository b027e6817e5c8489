"""The text model of a gateway: what its model folder has, with what the operator has changed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from actors.gateway.settings import GatewaySettings
from actors.gateway.text.chat_template import TemplateError, read_template
from actors.gateway.text.models.folder_text import FolderText
from actors.gateway.text.models.hash_chain_text import HashChainText
from actors.gateway.text.models.ids_only import IdsOnly
from actors.gateway.text.models.model_files import id_list, read_json
from actors.gateway.text.models.text_model import TextModel
from actors.gateway.text.reasoning_formats import AUTO
from messages.errors import ConfigError
from messages.hash_chain import HASH_CHAIN


def served_text(settings: GatewaySettings) -> TextModel:
    """The text model for these settings. Blocks for up to a second. Raises: ConfigError."""
    model, template = load_text_model(settings.model_folder), settings.chat_template
    if not isinstance(model, FolderText) or (not template and settings.reasoning == AUTO):
        return model
    try:
        return model.changed(read_template(template), settings.reasoning)
    except TemplateError as error:
        raise ConfigError(f"gateway.chat_template: {error}") from None


@lru_cache(maxsize=8)
def load_text_model(model_folder: str) -> TextModel:
    """The text model of a folder, or of "hash-chain". Blocks for up to a second.

    The result is cached, so that a spare process can call this before it becomes a gateway.

    Raises: ConfigError when the folder has no config.json or one of its files cannot be read.
    """
    if model_folder == HASH_CHAIN:
        return HashChainText()
    folder = Path(model_folder)
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model: expected a folder with config.json, got {model_folder!r}")
    if not (folder / "tokenizer.json").is_file():
        config = read_json(folder / "config.json")
        eos_tokens = id_list(read_json(folder / "generation_config.json").get("eos_token_id", config.get("eos_token_id")))
        return IdsOnly(int(config.get("vocab_size") or 1), eos_tokens)
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises plain Exception
        raise ConfigError(f"model: {folder / 'tokenizer.json'} cannot be read: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        return FolderText(folder, tokenizer)
    except TemplateError as error:
        raise ConfigError(f"model: {error}") from None
