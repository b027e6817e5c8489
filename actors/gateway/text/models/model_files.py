"""Reads what the files of a model folder say about its text: end tokens, special tokens, the chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from messages.errors import ConfigError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; {} if there is none. Raises: ConfigError."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"model: {path} is not JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def token_text(value: Any) -> str:
    """The text of a special token, which stands in the file as a string or as {"content": string}; "" if it is missing."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def id_list(value: Any) -> list[int]:
    """The token ids in a field that holds one id, a list of ids, or something else: then none."""
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, int) and not isinstance(v, bool)]


def eos_tokens(folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer, eos_text: str) -> list[int]:
    """Every id that ends an answer, from generation_config.json, config.json and the tokenizer's eos_token."""
    found = id_list(read_json(folder / "generation_config.json").get("eos_token_id")) + id_list(config.get("eos_token_id"))
    token = tokenizer.token_to_id(eos_text) if eos_text else None
    return sorted({*found, *([token] if token is not None else [])})


def template_source(folder: Path, settings: Mapping[str, Any]) -> str:
    """The chat template of a model folder; "" if it has none. settings: its tokenizer_config.json."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    source = settings.get("chat_template")
    if isinstance(source, list):  # several named templates
        by_name = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = by_name.get("default") or next(iter(by_name.values()), "")
    return source if isinstance(source, str) else ""


def tokenizer_settings(model_folder: str) -> dict[str, Any]:
    """The tokenizer_config.json of a model folder; {} without one. Blocks. Raises: ConfigError if it is not JSON."""
    return read_json(Path(model_folder) / "tokenizer_config.json")
