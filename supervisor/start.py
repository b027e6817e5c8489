"""`supervisor start`: everything between the command line and the first child, in order.

    configuration -> placement on devices -> run directory (lock) -> listening socket -> state directory (lock)
        -> model (converted or downloaded) -> tree -> supervisor

The placement is decided before this file is imported; see `host.py`. A step that fails says so in one
sentence that names the key, before anything has been started.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import structlog

from messages.errors import ConfigError
from messages.run_dir import front_endpoint, run_dir_of
from supervisor.children.run_dir import RunDir
from supervisor.children.state_dir import hold_state_dir
from supervisor.config import ServerConfig, described
from supervisor.logs import configure_logs
from supervisor.operator.display import Display
from supervisor.policy.placement import Placement
from supervisor.server import Server
from supervisor.supervisor import Supervisor
from supervisor.tree import StartFacts, build_tree

_BACKLOG = 1024
_PREDECESSOR_S = 0.5


def start(config: ServerConfig, placement: Placement) -> int:
    """Run a server in the foreground, with its ranks as `placement` says; returns its exit status.

    Raises: ConfigError when something that was asked for cannot be had.
    """
    if config.log_level == "auto":
        config = msgspec.structs.replace(config, log_level="warning" if sys.stderr.isatty() else "info")
    configure_logs(config.log_format, config.log_level, "supervisor/0", 0)
    held = RunDir.take(run_dir_path(config)) if config.port else None
    listener = listen(config.host, config.port)
    port = listener.getsockname()[1]
    run_dir = held or RunDir.take(run_dir_path(msgspec.structs.replace(config, port=port)))
    try:
        with hold_state_dir(Path(config.state_dir) if config.state_dir else run_dir.path) as state_dir:
            return _run(config, run_dir, state_dir, listener, placement)
    finally:
        listener.close()
        run_dir.release(is_temporary=config.port == 0 and not config.run_dir)


def run_dir_path(config: ServerConfig) -> Path:
    """Where this server lives."""
    return Path(config.run_dir) if config.run_dir else run_dir_of(config.port)


def listen(host: str, port: int) -> socket.socket:
    """The HTTP socket of all gateways. It is bound here so that it outlives each of them: connections that come while a
    gateway restarts wait in its queue.

    Raises: ConfigError naming host and port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"host: expected an address of this host, got {host} ({error.strerror})") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        _bind(listener, address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"port: expected {host}:{port} to be free, got {error.strerror}") from None
    listener.setblocking(False)
    return listener


def _bind(listener: socket.socket, address: Any) -> None:
    """Bind, with patience for the children of a killed predecessor: they hold its socket until they have died too."""
    end_s = time.monotonic() + _PREDECESSOR_S
    while True:
        try:
            listener.bind(address)
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end_s:
                raise
        time.sleep(0.02)


def _run(config: ServerConfig, run_dir: RunDir, state_dir: Path, listener: socket.socket, placement: Placement) -> int:
    from gpu_workers.models.resolve import resolve_model

    log = structlog.get_logger()
    log.info("configuration", **described(config))
    log.info("placement", plan=placement.text())
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    waiting = Display("", url, "")
    began_s = time.monotonic()
    try:
        model = resolve_model(config.model, lambda what, fraction: waiting.loading("model", what, fraction))
    except ValueError as error:
        raise ConfigError(f"model: {error}") from None
    finally:
        waiting.close()
    log.info("model", name=model.name, folder=model.setting, took_s=round(time.monotonic() - began_s, 3))
    facts = StartFacts(
        state_dir=state_dir,
        run_dir=run_dir.path,
        listen_fd=listener.fileno(),
        model_setting=model.setting,
        model_name=model.name,
        model_length=model.config.max_position if model.config else 0,
        placement=placement,
        cores=len(os.sched_getaffinity(0)),
    )
    name = config.model_name or model.name
    groups = build_tree(config, facts)
    layout = placement.summary()
    server = Server(groups, run_dir, config.supervisor, name, url, config.log_format, config.log_level, layout)
    return run_server(server, Display(name, url, front_endpoint(run_dir.path, 0)))


def run_server(server: Server, display: Display) -> int:
    """One supervisor's life on an event loop of its own."""
    import asyncio

    import uvloop

    async def live() -> int:
        return await Supervisor(server, display).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(live())
