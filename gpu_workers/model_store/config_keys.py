"""Reads and checks the keys of a `config.json`. No torch here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class ModelConfigError(ValueError):
    """A key of config.json is missing, has a wrong type, or asks for something that is not supported."""


class ConfigKeys:
    """The keys of one JSON object; null counts as missing. An error names the key, what was expected and what came."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    def with_defaults(self, **defaults: Any) -> ConfigKeys:
        """The same keys, with these values for those that are missing or null."""
        return ConfigKeys({**defaults, **{key: value for key, value in self._raw.items() if value is not None}})

    def value(self, key: str, default: Any = None) -> Any:
        """The value, unchecked."""
        found = self._raw.get(key)
        return default if found is None else found

    def text(self, key: str, default: str | None = None) -> str:
        """A string. Raises: ModelConfigError when it is none."""
        value = self.value(key, default)
        if not isinstance(value, str):
            raise ModelConfigError(f"{key}: expected a string, got {value!r}")
        return value

    def positive(self, key: str, default: int | None = None) -> int:
        """A positive integer. Raises: ModelConfigError when it is none."""
        value = self.value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelConfigError(f"{key}: expected a positive integer, got {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number. Raises: ModelConfigError when it is none."""
        value = self.value(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise ModelConfigError(f"{key}: expected a positive number, got {value!r}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false. Raises: ModelConfigError when it is neither; here null is refused too."""
        value = self._raw.get(key, default)
        if not isinstance(value, bool):
            raise ModelConfigError(f"{key}: expected true or false, got {value!r}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when it is missing. Raises: ModelConfigError when it is something else."""
        value = self.value(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ModelConfigError(f"{key}: expected a list of strings, got {value!r}")
        return tuple(value)

    def section(self, key: str) -> ConfigKeys:
        """The object under `key`; one without keys when it is missing. Raises: ModelConfigError when it is something else."""
        value = self.value(key, {})
        if not isinstance(value, Mapping):
            raise ModelConfigError(f"{key}: expected an object, got {type(value).__name__}")
        return ConfigKeys(value)

    def refuse(self, *keys: str) -> None:
        """Check that each of these keys is missing, null or false. Raises: ModelConfigError naming the first that is not."""
        for key in keys:
            if self.value(key, False) is not False:
                raise ModelConfigError(f"{key}: expected null or false, got {self._raw[key]!r}")

    def __bool__(self) -> bool:
        return bool(self._raw)


def read_keys(path: Path) -> ConfigKeys:
    """The keys of a JSON file. Raises ModelConfigError naming the file."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelConfigError(f"{path}: expected a file that can be read, got {error.strerror}") from error
    except ValueError as error:
        raise ModelConfigError(f"{path}: expected a JSON object, got {error}") from error
    if not isinstance(raw, dict):
        raise ModelConfigError(f"{path}: expected a JSON object, got {type(raw).__name__}")
    return ConfigKeys(raw)
