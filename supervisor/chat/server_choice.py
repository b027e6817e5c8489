"""Which server a chat talks to: one that is named, one of this user that runs, or a private one that is started for it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gpu_workers.models.resolve import DEFAULT_MODEL, is_default_model
from messages.errors import ConfigError
from messages.local.private_server import PrivateServer, is_private
from messages.run_dir import zeromq_endpoint
from supervisor.directories.run_dir_files import SERVER
from supervisor.operator.server_search import run_dir_with, running

_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ChosenServer:
    """A server to talk to. `private`: the one that was started for this; None: it runs anyway."""

    endpoint: str
    private: PrivateServer | None = None

    @property
    def text(self) -> str:
        """Where it is, for people."""
        return "a private server" if self.private else self.endpoint

    def close(self) -> None:
        """End a private server."""
        if self.private is not None:
            self.private.close()


class _Origin(msgspec.Struct):
    config: dict[str, Any]


class _ServedModel(msgspec.Struct):
    model_name: str
    origin: _Origin | None = None


def endpoint_at(url: str) -> str:
    """The ZeroMQ endpoint for what a user names: "ipc://..." and "tcp://..." are endpoints; "http://127.0.0.1:PORT" is the
    server of this user on this machine with that port. Raises: ConfigError; NoServer if nothing runs there."""
    from supervisor.operator.calls import check_running

    if url.startswith(("ipc://", "tcp://")):
        return url
    with suppress(ValueError):  # of a port that is no number
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname in _LOCAL and parts.port:
            where = run_dir_with(parts.port)
            check_running(where)
            return zeromq_endpoint(where)
    raise ConfigError(
        f"url: expected ipc://PATH, tcp://HOST:PORT (a server with --zeromq-port) or http://127.0.0.1:PORT of a server on this"
        f" machine, got {url!r}"
    )


def running_with(model: str) -> str | None:
    """The endpoint of a server of this user that serves `model`, named as for `supervisor start` or as clients see it; None if
    there is none. Private servers of other processes end with these, and are left alone."""
    for run_dir in (run_dir for run_dir, _ in running() if not is_private(run_dir)):
        with suppress(OSError, msgspec.MsgspecError):
            if _serves(msgspec.json.decode((run_dir / SERVER).read_bytes(), type=_ServedModel), model):
                return zeromq_endpoint(run_dir)
    return None


def _serves(served: _ServedModel, model: str) -> bool:
    started_with = str(served.origin.config.get("model", "")) if served.origin else served.model_name
    if is_default_model(model) and not os.path.isdir(model):
        return is_default_model(started_with)
    if os.path.exists(model):  # two folders may have one name
        return os.path.realpath(started_with) == os.path.realpath(model)
    return model in (served.model_name, started_with)


def start_private(model: str) -> ChosenServer:
    """Start a server for `model` that ends with this process, with what it does on standard error if that is a terminal.

    Raises: ConfigError, Unavailable.
    """
    fetch(model)
    with _waiting(f"starting a private server for {model or DEFAULT_MODEL}") as on_wait:
        server = PrivateServer(model, on_wait=on_wait)
    return ChosenServer(server.endpoint, server)


def fetch(model: str) -> None:
    """Download or convert `model` here, where its progress can be shown. Raises: ConfigError."""
    from gpu_workers.models.resolve import resolve_model
    from supervisor.library.missing import fetch_named
    from supervisor.operator.display import Display

    fetch_named(model)
    display = Display("", "", "")
    try:
        resolve_model(model, lambda what, fraction: display.loading("model", what, fraction))
    except (ValueError, OSError) as error:
        raise ConfigError(f"model: {error}") from None
    finally:
        display.close()


@contextmanager
def _waiting(what: str) -> Iterator[Callable[[], None]]:
    """A line on the terminal with the seconds so far; it is removed at the end."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console

    began_s = time.monotonic()
    with Console(stderr=True).status(what) as status:
        yield lambda: status.update(f"{what}: {time.monotonic() - began_s:.0f} s")


def chosen(url: str | None, port: int | None, run_dir: Path | None, model: str | None) -> ChosenServer:
    """The server that the flags of a command name; without any, the one that `supervisor status` finds, or a private one.

    Raises: ConfigError, Unavailable; NoServer if a place is named and nothing runs there.
    """
    from messages.run_dir import DEFAULT_PORT
    from supervisor.operator.calls import check_running, is_alive

    if url:
        return ChosenServer(endpoint_at(url))
    if port is not None or run_dir is not None:
        where = (run_dir or run_dir_with(DEFAULT_PORT if port is None else port)).absolute()
        check_running(where)
        return ChosenServer(zeromq_endpoint(where))
    if model is not None:
        endpoint = running_with(model)
        return ChosenServer(endpoint) if endpoint else start_private(model)
    where = run_dir_with(DEFAULT_PORT)
    return ChosenServer(zeromq_endpoint(where)) if is_alive(where) else start_private("")
