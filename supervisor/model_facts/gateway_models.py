"""What gateways and workers are told of the models that a server serves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from messages.errors import ConfigError
from messages.lifecycle.model_digests import ModelDigests, read_digests
from supervisor.config.server_config import ServerConfig
from supervisor.placement.placement import Placement
from supervisor.start_facts import StartFacts

_KERNELS = 1  # to be raised when the kernels of the package give other results


def embedding_of(facts: StartFacts) -> dict[str, Any]:
    """What gateways must know of the embedding model."""
    if (model := facts.embedding) is None:
        return {}
    return {
        "embedding_model": model.name,
        "embedding_folder": model.folder,
        "embedding_length": model.max_length,
        "embedding_dimensions": model.dimensions,
        "embedding_normalized": model.is_normalized,
        "embedding_prompts": dict(model.prompts),
        "embedding_default_prompt": model.default_prompt,
        "embedding_digests": model.digests,
    }


def digests_of(key: str, model_setting: str, also: Iterable[str] = ()) -> ModelDigests:
    """The digests of a model's files, whose key in the configuration is `key`. `also` as in `read_digests`.

    Raises: ConfigError when one cannot be read."""
    try:
        return read_digests(model_setting, also)
    except OSError as error:
        raise ConfigError(f"{key}: {error}") from None


def sampling_of(config: ServerConfig) -> dict[str, int | float]:
    """Parameters of sampling where a request has none: the operator's, above those that go with a packaged model."""
    from gpu_workers.model_store.packaged import PACKAGES, SMOLLM2
    from gpu_workers.models.resolve import is_default_model

    own = config.gateway.default_sampling
    is_packaged = config.gateway.generation_config == "auto" and is_default_model(config.model)
    return {**PACKAGES[SMOLLM2].sampling, **own} if is_packaged else own


def numerics_of(config: ServerConfig, placement: Placement) -> str:
    """What beside the model's files decides the exact tokens. Requests in a journal name it; see `ModelIdentity`."""
    where = "+".join(dict.fromkeys(gpu.name for gpu in placement.gpus)) or placement.device
    worker = config.worker
    dtypes = f"{placement.dtype or 'exact'}" + (f" kv-{worker.kv_dtype}" if worker.kv_dtype != "auto" else "")
    weights = placement.quantization_of(worker)
    dtypes += f" weights-{weights}" if weights != "none" else ""
    return f"{dtypes} tp{placement.tp} {where} {worker.attention} weights-{worker.load_format} k{_KERNELS}"
