"""What a model takes besides token ids, by its files: text with a tokenizer, conversations with a chat template."""

from __future__ import annotations

from pathlib import Path

import msgspec
import structlog

from gpu_workers.model_store.model_folder import ModelFolder
from messages.errors import ConfigError

TOKENIZER_FILE = "tokenizer.json"
_MOST_NAMED = 5  # keys of a file that is none
_TEMPLATE_FILES = ("chat_template.jinja", "tokenizer_config.json")  # where a model folder has one
_POINTER_BEGINS = b"version "  # the first bytes of what Git LFS leaves in place of a file that it has not loaded


def text_inputs(model: ModelFolder, has_template: bool) -> tuple[bool, bool]:
    """Whether the model takes text, and whether it takes conversations. Warns of one that does not. `has_template`: the
    configuration names a chat template.

    Raises: ConfigError when there is a tokenizer that no gateway could read.
    """
    log, folder = structlog.get_logger(), model.path
    if folder is None:
        return False, False
    if not (folder / TOKENIZER_FILE).is_file():
        log.warning("the model has no tokenizer.json: it takes token ids only, and no text", folder=model.setting)
        return False, False
    check_tokenizer(folder / TOKENIZER_FILE)
    files = [file for name in _TEMPLATE_FILES if (file := folder / name).is_file()]
    if has_template or any(b"chat_template" in file.name.encode() + file.read_bytes() for file in files):
        return True, True
    said = "the model has no chat template: it takes prompts, and no conversations, unless gateway.chat_template names one"
    log.warning(said, folder=model.setting)
    return True, False


def check_tokenizer(path: Path) -> None:
    """Check that a tokenizer.json is there as a whole: a JSON object with a model. What is in that, gateways check.

    Raises: ConfigError.
    """
    expected = f"model: {path}: expected a JSON object"
    try:
        encoded = path.read_bytes()
        if encoded.startswith(_POINTER_BEGINS):
            raise ConfigError(f"{expected}, got a pointer of Git LFS; `git lfs pull` loads the file")
        names = list(msgspec.json.decode(encoded, type=dict[str, msgspec.Raw]))
    except OSError as error:
        raise ConfigError(f"{expected}, got {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{expected}, got {error}; was the file copied or loaded as a whole?") from None
    if "model" not in names:
        got = ", ".join(names[:_MOST_NAMED]) or "an empty object"
        raise ConfigError(f"model: {path}: expected the file of a tokenizer, with a key model, got {got}")
