"""What the files of sentence-transformers beside a checkpoint say, without torch: how vectors are made of hidden states.

    modules.json                        the steps after the transformer: pooling, normalisation
    1_Pooling/config.json               which hidden states become the vector
    sentence_bert_config.json           tokens of the longest text
    config_sentence_transformers.json   prompts by name, which stand before texts

None of them has to be there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeVar

import msgspec

from messages.errors import ConfigError

_MODULES, _PROMPTS, _LENGTH = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
_USUAL_POOLING = "1_Pooling"  # the folder, where no modules.json names another one
_SERVED_MODULES = ("Transformer", "Pooling", "Normalize")
SENTENCE_FILES = (_MODULES, _PROMPTS, _LENGTH, f"{_USUAL_POOLING}/config.json")  # what decides vectors beside the model itself
T = TypeVar("T")


class Pooling(Enum):
    """How the hidden states of a text's tokens become one vector."""

    MEAN = "mean"
    FIRST = "first"  # that of the first token, [CLS] in encoders
    LAST = "last"


_MODES = {"mean": Pooling.MEAN, "cls": Pooling.FIRST, "lasttoken": Pooling.LAST}


class _Module(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of `modules.json`. `type`: a class of Python, of which the last part is read."""

    type: str
    path: str = ""


class _PoolingFile(msgspec.Struct, frozen=True, kw_only=True):
    """`1_Pooling/config.json`: a flag for each mode, or `pooling_mode` in newer ones."""

    pooling_mode: str | None = None
    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False
    include_prompt: bool = True

    @property
    def modes(self) -> list[str]:
        """The modes that are on, by their short names."""
        if self.pooling_mode is not None:
            return [self.pooling_mode]
        flags = [name for name in self.__struct_fields__ if name.startswith("pooling_mode_") and getattr(self, name)]
        return [name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token") for name in flags]


class _LengthFile(msgspec.Struct, frozen=True, kw_only=True):
    """`sentence_bert_config.json`."""

    max_seq_length: int | None = None


class _PromptsFile(msgspec.Struct, frozen=True, kw_only=True):
    """`config_sentence_transformers.json`."""

    prompts: dict[str, str | None] = {}
    default_prompt_name: str | None = None


@dataclass(frozen=True)
class SentenceFiles:
    """What these files say. `max_length`: tokens, or None; `pooling`: None where no file says it; `prompts`: by name."""

    max_length: int | None = None
    pooling: Pooling | None = None
    normalizes: bool = True
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str = ""  # a name, or ""


def read_sentence_files(folder: Path) -> SentenceFiles:
    """The files of this folder. Raises: ConfigError naming the file and the key."""
    modules = _read_if_there(folder / _MODULES, list[_Module])
    kinds = None if modules is None else [module.type.rpartition(".")[2] for module in modules]
    for kind in kinds or ():
        if kind not in _SERVED_MODULES:
            expected = ", ".join(_SERVED_MODULES)
            raise ConfigError(f"embedding_model: {folder / _MODULES}: type: expected one of {expected}, got {kind!r}")
    prompts, default = _prompts(folder / _PROMPTS)
    places = [module.path for module, kind in zip(modules or (), kinds or (), strict=True) if kind == "Pooling"]
    pooling = _pooling(folder / (places[0] if places else _USUAL_POOLING) / "config.json", any(prompts.values()))
    length = _read_if_there(folder / _LENGTH, _LengthFile)
    return SentenceFiles(
        max_length=length.max_seq_length if length is not None else None,
        pooling=pooling,
        normalizes=kinds is None or "Normalize" in kinds,
        prompts=prompts,
        default_prompt=default,
    )


def decode_file(path: Path, kind: type[T]) -> T:
    """A JSON file. Raises: ConfigError naming the file and the key."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"embedding_model: {path}: {error}") from None


def _read_if_there(path: Path, kind: type[T]) -> T | None:
    return decode_file(path, kind) if path.is_file() else None


def _pooling(path: Path, has_prompts: bool) -> Pooling | None:
    file = _read_if_there(path, _PoolingFile)
    if file is None:
        return None
    if len(file.modes) != 1 or file.modes[0] not in _MODES:
        got = " and ".join(file.modes) or "none"
        raise ConfigError(f"embedding_model: {path}: pooling_mode: expected one of {', '.join(_MODES)}, got {got}")
    pooling = _MODES[file.modes[0]]
    if has_prompts and not file.include_prompt and pooling is not Pooling.LAST:
        raise ConfigError(f"embedding_model: {path}: include_prompt: expected true, got false, and there are prompts")
    return pooling


def _prompts(path: Path) -> tuple[dict[str, str], str]:
    """The prompts by name, and the name of the default one, "" if there is none."""
    file = _read_if_there(path, _PromptsFile) or _PromptsFile()
    prompts = {name: prompt or "" for name, prompt in file.prompts.items()}
    default = file.default_prompt_name or ""
    if default and default not in prompts:
        raise ConfigError(
            f"embedding_model: {path}: default_prompt_name: expected one of {', '.join(prompts) or 'no prompts'}, got {default}"
        )
    return prompts, default
