"""Finds the fallback model when a server starts."""

from __future__ import annotations

from gpu_workers.cpu.instructions import has_exact_products, has_int8_dot
from gpu_workers.models.resolve import resolve_model
from gpu_workers.runner.memory_estimate import memory_bytes
from messages.errors import ConfigError
from supervisor.config.server_config import ServerConfig
from supervisor.model_facts.gateway_models import digests_of
from supervisor.operator.display import Display
from supervisor.placement.fallback_room import plan_fallback
from supervisor.placement.hardware import Host
from supervisor.start_facts import FallbackFacts


def fallback_facts(config: ServerConfig, url: str) -> FallbackFacts | None:
    """The fallback model, if there is one; it is downloaded or converted first if needed, with a progress bar.

    Raises: ConfigError.
    """
    if not config.fallback_model:
        return None
    display = Display("", url, "", is_json=config.log_format == "json")
    try:
        model = resolve_model(config.fallback_model, lambda what, part: display.loading("fallback model", what, part))
    except (ValueError, OSError) as error:
        raise ConfigError(f"fallback_model: {error}") from None
    finally:
        display.close()
    name = config.fallback.model_name or model.name
    if model.config is None:
        return FallbackFacts(name, model.setting, 0, "")
    placement = plan_fallback(config, Host((), memory_bytes(), has_exact_products(), has_int8_dot()))
    digests = digests_of("fallback_model", model.setting)
    return FallbackFacts(name, model.setting, model.config.max_position, placement.dtype, placement.quantization, digests)
