"""Default sampling parameters, for requests that give none: the operator's override those of the model."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from actors.gateway.settings import GatewaySettings
from actors.gateway.text.models.model_files import read_json
from messages.errors import ConfigError
from messages.generation.sampling import Sampling

_KINDS = get_type_hints(Sampling, include_extras=True)
_NAMES = tuple(name for name in Sampling.__struct_fields__ if name not in ("seed", "logprobs"))
_OF_MODELS = tuple(name for name in _NAMES if name not in ("presence_penalty", "frequency_penalty"))  # which are OpenAI's


def sampling_defaults(settings: GatewaySettings) -> dict[str, float | int]:
    """Parameters by the names that `Sampling` has. Those of generation_config.json that are out of range are left out.

    Raises: ConfigError for one of the operator's.
    """
    found: dict[str, float | int] = {}
    if settings.generation_config == "auto":
        told = read_json(Path(settings.model_folder) / "generation_config.json")
        found = {name: value for name in _OF_MODELS if (value := _checked(name, told.get(name))) is not None}
    for name, value in settings.default_sampling.items():
        checked = _checked(name, value) if name in _NAMES else None
        if checked is None:
            raise ConfigError(_refused(name, value))
        found[name] = checked
    return found


def _refused(name: str, value: Any) -> str:
    path = f"gateway.default_sampling.{name}"
    if name not in _NAMES:
        near = difflib.get_close_matches(name, _NAMES, 1)
        known = f"did you mean {near[0]}?" if near else f"known are {', '.join(_NAMES)}"
        return f"{path}: unknown; {known}"
    return f"{path}: expected a value in the range of {name} in a request, got {value!r}"


def _checked(name: str, value: Any) -> float | int | None:
    """The value of a parameter in its type; None if it is out of range."""
    try:
        return msgspec.convert(value, _KINDS[name])
    except msgspec.ValidationError:
        return None
