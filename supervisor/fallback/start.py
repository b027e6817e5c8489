"""Finds the fallback model when a server starts."""

from __future__ import annotations

from gpu_workers.models.resolve import resolve_model
from messages.errors import ConfigError
from supervisor.config.server_config import ServerConfig
from supervisor.operator.display import Display
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
    dtype = "float32" if config.fallback.dtype == "auto" else config.fallback.dtype
    length = model.config.max_position if model.config else 0
    return FallbackFacts(config.fallback.model_name or model.name, model.setting, length, dtype if model.config else "")
