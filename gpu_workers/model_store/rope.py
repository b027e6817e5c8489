"""The parameters of rotary positions, read from `config.json`. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_workers.model_store.config_keys import ConfigKeys, ModelConfigError

SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True)
class Rope:
    """The base of the frequencies and their scaling. `kind` is one of SUPPORTED_ROPE_TYPES; the fields after it are
    used by "linear" (`factor`) and "llama3" (all)."""

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_max_position: int = 8192


def read_rope(keys: ConfigKeys) -> Rope:
    """Reads both forms: the older flat keys (`rope_theta`, `rope_scaling`) and `rope_parameters`. Raises: ModelConfigError."""
    keys_of_rope = keys.section("rope_parameters") or keys.section("rope_scaling")
    if keys.value("partial_rotary_factor", keys_of_rope.value("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelConfigError("partial_rotary_factor: expected 1.0 (all of a head rotates)")
    theta = keys_of_rope.number("rope_theta", keys.number("rope_theta", 10_000.0))
    original = keys.positive("original_max_position_embeddings", 8192)
    return rope_of(keys_of_rope, theta, original)


def rope_of(keys: ConfigKeys, theta: float, original_max_position: int = 8192) -> Rope:
    """The rope of one `rope_parameters` object. theta, original_max_position: used if the object has none of its own.

    Raises: ModelConfigError when its type is not supported, or a number is missing.
    """
    kind = keys.value("rope_type", keys.value("type", "default")) or "default"
    if kind not in SUPPORTED_ROPE_TYPES:
        raise ModelConfigError(f"rope_type: expected one of {', '.join(SUPPORTED_ROPE_TYPES)}, got {kind!r}")
    theta = keys.number("rope_theta", theta)
    if kind == "default":
        return Rope(theta)
    factor = keys.number("factor")
    if kind == "linear":
        return Rope(theta, kind, factor)
    original = keys.positive("original_max_position_embeddings", original_max_position)
    return Rope(theta, kind, factor, keys.number("low_freq_factor"), keys.number("high_freq_factor"), original)
