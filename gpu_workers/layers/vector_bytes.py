"""How many bytes a key and a value take in pages that do not hold the model's own numbers. Plans need it, so no torch here."""

from __future__ import annotations

from messages.errors import ConfigError

SCALE_BYTES = 2
_LEAST_SMALL_WIDTH = 32


def scaled_vector_bytes(head_dim: int) -> tuple[int, int]:
    """Of a key and of a value as 8-bit numbers, with the scale of each."""
    return head_dim + SCALE_BYTES, head_dim + SCALE_BYTES


def small_vector_bytes(head_dim: int) -> tuple[int, int]:
    """Of a key of 32 levels and of a value of 11, each with two scales of a byte; see `small_pages`.

    Raises: ConfigError unless `can_be_small`."""
    if not can_be_small(head_dim):
        raise ConfigError(
            "worker.kv_dtype: expected auto, int8 or fp8 for this model, because int4 needs heads whose size is a power of two"
            f" and at least {_LEAST_SMALL_WIDTH}; got int4 with heads of {head_dim}"
        )
    return head_dim // 2 + head_dim // 8 + 2, head_dim // 4 + 3 * head_dim // 16 + 2


def can_be_small(head_dim: int) -> bool:
    """True if vectors of this size can be small integers: a power of two, at least 32."""
    return head_dim >= _LEAST_SMALL_WIDTH and not head_dim & (head_dim - 1)


def check_small_places(head_dim: int) -> None:
    """Raises: ConfigError if places of the host tier cannot hold heads of this size as small integers."""
    if not can_be_small(head_dim):
        raise ConfigError(
            "worker.host_cache_dtype: expected same for this model, because the others need heads whose size is a power"
            f" of two and at least {_LEAST_SMALL_WIDTH}; got heads of {head_dim}"
        )
