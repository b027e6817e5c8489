"""What `supervisor check-config` checks on this host besides devices and weights: tokenizer, address and directories.

Nothing is made or locked, and a server that runs with this configuration is no error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from messages.errors import ConfigError
from messages.run_dir import run_dir_of
from supervisor.config.config_file import refuse
from supervisor.config.server_config import ServerConfig
from supervisor.directories.run_dir_files import check_length
from supervisor.directories.state_dir import check_private, default_state_dir
from supervisor.listener import Protection, check_address


def check_start(config: ServerConfig) -> None:
    """Check that a server of this configuration can start here. Raises: ConfigError that says all that this host lacks."""
    refuse(list(_errors(config)))


def tenants_without_key(config: ServerConfig) -> list[str]:
    """The tenants of a configuration to whom no key belongs: their names may be misspelt."""
    from supervisor.config.tenant_keys import without_key

    named = config.state_dir or config.run_dir
    return without_key(config.tenants, Path(named) if named else default_state_dir(config.port, os.environ, Path.home()))


def _errors(config: ServerConfig) -> Iterator[str]:
    checks = [lambda: _check_address(config), lambda: _check_run_dir(config)]
    if config.model and Path(config.model).is_dir():
        checks.append(lambda: _check_text(config.model))
    if config.state_dir:
        checks.append(lambda: _check_directory(Path(config.state_dir), "state_dir"))
    for check in checks:
        try:
            check()
        except ConfigError as error:
            yield str(error)


def _check_address(config: ServerConfig) -> None:
    check_address(config.host, config.port, Protection.of(config))


def _check_text(folder: str) -> None:
    from actors.gateway.text.models.served_text import load_text_model
    from supervisor.model_text import TOKENIZER_FILE, check_tokenizer

    if (tokenizer := Path(folder) / TOKENIZER_FILE).is_file():
        check_tokenizer(tokenizer)
    load_text_model(folder)


def _check_run_dir(config: ServerConfig) -> None:
    path = Path(config.run_dir).absolute() if config.run_dir else run_dir_of(config.port)
    check_length(path)
    if config.run_dir or path.exists():
        _check_directory(path, "run_dir")


def _check_directory(path: Path, key: str) -> None:
    """Check that `path`, the value of the setting `key`, can be used as a directory, or be made.

    Raises: ConfigError if it exists and cannot be used, or does not exist and cannot be made.
    """
    try:
        check_private(path, key)
    except FileNotFoundError:
        if not path.absolute().parent.is_dir():
            raise ConfigError(f"{key}: expected a directory that can be made at {path}, got no {path.parent}") from None
        if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
            raise ConfigError(f"{key}: expected a directory that can be made at {path}, got Permission denied") from None
    except OSError as error:
        raise ConfigError(f"{key}: expected a directory that can be made at {path}, got {error.strerror}") from None
