"""What cannot be computed deterministically, as far as it is known before a rank loads the model."""

from __future__ import annotations

from messages.errors import ConfigError
from supervisor.policy.placement import Placement


def check_deterministic(placement: Placement, attention: str) -> None:
    """Check a placement with `deterministic`. attention: `WorkerSettings.attention`. A rank refuses models without kernels.

    Raises: ConfigError naming the key."""
    if not placement.deterministic:
        return
    if attention == "torch":
        raise ConfigError('worker.attention: expected "auto" with worker.deterministic, got "torch"')
    if not placement.gpus and placement.dtype == "float16":
        raise ConfigError("worker.dtype: expected float32 or bfloat16 with worker.deterministic on CPU cores, got float16")
    kinds = dict.fromkeys(gpu.name for gpu in placement.gpus)
    if len(kinds) > 1:
        raise ConfigError(f"gpus: expected GPUs of one kind with worker.deterministic, got {' and '.join(kinds)}")
