"""`supervisor start`: the steps from the command line to the first child.

    configuration -> placement on devices -> run directory (lock) -> listening socket -> state directory (lock)
        -> model (converted or downloaded) -> tree -> supervisor

`resume` instead of `start`: the next supervisor of the same server goes on with what its parent has kept.

The placement is decided before this file is imported; see `host.py`. When a step fails, the start ends with one sentence that
names the key, before any child is started.
"""

from __future__ import annotations

import supervisor.children.quick_imports  # noqa: F401  before all that import structlog or numpy

# isort: split
import os
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import structlog

from gpu_workers.embedding.model_files import open_model
from gpu_workers.embedding.sentence_files import SENTENCE_FILES
from gpu_workers.model_store.model_folder import ModelFolder
from messages.access.audit_log import AUDIT_FILE
from messages.descriptors.server import listen_at
from messages.errors import ConfigError
from messages.lifecycle.spawn_spec import CUSTODIAN_SOCKET, LISTEN_SOCKET
from messages.log_file.rotated_file import LOG_FILE, LogFile
from messages.outcomes import ExitCode
from messages.run_dir import custodian_socket, run_dir_of
from supervisor.access.server_keys import make_curve_keys
from supervisor.activation.command_inputs import NO_INPUTS, CommandInputs
from supervisor.activation.listener_of import listener_of
from supervisor.config.server_config import ServerConfig, changed, described
from supervisor.config.tenant_keys import warn_of_tenants_without_key
from supervisor.directories.gateway_number import StartTime, note_gateways
from supervisor.directories.run_dir import RunDir, RunDirTaken
from supervisor.directories.saved_state import SavedStateFile
from supervisor.directories.server import Server, StartInputs, as_json, half_restarted, read_next_server, read_server
from supervisor.directories.state_dir import COPIED as STATE_FILES
from supervisor.directories.state_dir import StateDir, hold_state_dir
from supervisor.directories.state_dir_choice import state_dir_of
from supervisor.fallback.start import fallback_facts
from supervisor.listener import Protection, check_exposure, check_zeromq_ports, is_loopback, url_of
from supervisor.logs import configure_logs
from supervisor.model_facts.gateway_models import digests_of
from supervisor.model_text import text_inputs
from supervisor.operator.display import Display, flags_for_tls
from supervisor.parent.kernel import adopt_descendants, outlive_parent
from supervisor.parent.link import ParentLink
from supervisor.parent.lock_file import LockFile
from supervisor.parent.memory_copy import keep_copies
from supervisor.placement.placement import Placement
from supervisor.restart.successor import leave_next
from supervisor.start_facts import EmbeddingFacts, StartFacts
from supervisor.succession import leave_to_next
from supervisor.supervisor import Supervisor
from supervisor.tree import build_tree, zeromq_tcp_of

_RUN_DIR, _STATE_LOCK = "run_dir", "state_lock"  # what the parent keeps, by name


def start(config: ServerConfig, placement: Placement, link: ParentLink | None = None, inputs: CommandInputs = NO_INPUTS) -> int:
    """Run a server in the foreground, with its ranks as `placement` says; returns its exit status. `link`: the parent, which
    keeps what the next supervisor needs.

    Raises: ConfigError when the host cannot provide what the configuration asks for.
    """
    link = link or ParentLink()
    if config.log_level == "auto":
        config = msgspec.structs.replace(config, log_level="warning" if sys.stderr.isatty() else "info")
    configure_logs(config.log_format, config.log_level, "supervisor/0", 0)
    with ExitStack() as stack:
        held = _hold_run_dir(stack, config) if config.port else None  # before the port: two servers never compete
        if held is not None and held.has_orphans:
            held.begin()
        listener = stack.enter_context(listener_of(config, inputs.passed))
        address, port = listener.getsockname()[:2]
        check_exposure(address, Protection.of(config))
        if config.zeromq_port:
            check_zeromq_ports(config.zeromq_host, config.zeromq_port, config.gateways)
        is_temporary = not (held or config.run_dir)
        run_dir = held or _hold_run_dir(stack, msgspec.structs.replace(config, port=port), is_temporary)
        state_path = state_dir_of(config, run_dir.path).absolute()
        state_dir = stack.enter_context(hold_state_dir(state_path, partial(link.keep, _STATE_LOCK, str(state_path))))
        log_file = LogFile(str(state_path / LOG_FILE), config.log_file_bytes)
        configure_logs(config.log_format, config.log_level, "supervisor/0", 0, log_file, run_dir.path)
        make_curve_keys(config, state_path)
        warn_of_tenants_without_key(config.tenants, state_path)
        run_dir.begin()  # nothing of an earlier server is touched before all that this one needs is free
        run_dir.keep_lock = partial(link.keep, _RUN_DIR, str(run_dir.path))
        run_dir.keep_lock(run_dir.lock_fd)
        keep_copies(link, run_dir.path)
        keep_copies(link, state_path, STATE_FILES)
        run_dir.note_processes(link.parent_pid)
        link.keep(LISTEN_SOCKET, "", listener.fileno())
        custodian_fd = _listen_for_custodians(stack, config, run_dir, link)
        server, facts = _determine(config, run_dir, state_path, (listener, custodian_fd), placement)
        origin = None if inputs.flags is None else StartInputs(inputs.flags, as_json(config), facts.to_builtins())
        server = replace(server, is_temporary=is_temporary, origin=origin, state_dir=state_dir, log_file=log_file)
        server.save()
        return run_server(server, Display.of(server), link)


def resume(link: ParentLink) -> int:
    """Go on as the supervisor of a server whose last supervisor died, with what the parent has kept; returns its exit status.

    Raises: OSError, msgspec.DecodeError when the run directory does not say what this server is.
    """
    leave_next(link)
    configure_logs("console", "info", "supervisor/0", 0)  # until it is known how: a log on a full disk must fail nobody
    path = Path(link.kept[_RUN_DIR].value)
    keep_copies(link, path)
    run_dir = RunDir.resume(path, link.kept[_RUN_DIR].fd, partial(link.keep, _RUN_DIR, str(path)))
    run_dir.note_processes(link.parent_pid)
    descriptors = {name: kept.fd for name, kept in link.kept.items()}
    server, target = read_server(run_dir, descriptors), None
    if SavedStateFile(run_dir.saved_state_path).left.roll.is_open:
        target = read_next_server(run_dir, descriptors)
        server = replace(target, groups=half_restarted(server.groups, target.groups))
    configure_logs(server.log_format, server.log_level, "supervisor/0", 0, server.log_file, path)
    server = replace(server, state_dir=_resumed_state_dir(link))
    try:
        return run_server(server, Display.of(server), link, target)
    finally:
        run_dir.release(server.is_temporary)


def _resumed_state_dir(link: ParentLink) -> StateDir | None:
    """The state directory that the last supervisor held; None if that was one of a release that has not said where it is."""
    kept = link.kept.get(_STATE_LOCK)
    if kept is None or not kept.value:
        return None
    path = Path(kept.value)
    keep_copies(link, path, STATE_FILES)
    return StateDir(path, LockFile(kept.fd), partial(link.keep, _STATE_LOCK, kept.value))


def _hold_run_dir(stack: ExitStack, config: ServerConfig, is_temporary: bool = False) -> RunDir:
    """Hold the run directory until `stack` closes; a temporary one is removed then."""
    try:
        run_dir = RunDir.lock(run_dir_path(config))
    except RunDirTaken as error:
        if config.run_dir:
            raise
        raise ConfigError(
            f"port: expected a port that no other server of this user serves, got {config.port}"
            f" (served by pid {error.pid or '?'}; supervisor status --port {config.port} shows it)"
        ) from None
    stack.callback(run_dir.release, is_temporary=is_temporary)
    return run_dir


def run_dir_path(config: ServerConfig) -> Path:
    """The run directory of this server."""
    return Path(config.run_dir) if config.run_dir else run_dir_of(config.port)


def _listen_for_custodians(stack: ExitStack, config: ServerConfig, run_dir: RunDir, link: ParentLink) -> int:
    """The socket at which all custodians listen, one after the other: what gateways send between two of them waits in it.
    Returns -1 if there is none; then each custodian makes its own, and says why it cannot."""
    if not config.holds_connections:
        return -1
    try:
        listener = stack.enter_context(listen_at(Path(custodian_socket(run_dir.path))))
    except OSError:
        return -1
    link.keep(CUSTODIAN_SOCKET, "", listener.fileno())
    return listener.fileno()


def _determine(
    config: ServerConfig, run_dir: RunDir, state_dir: Path, listeners: tuple[socket.socket, int], placement: Placement
) -> tuple[Server, StartFacts]:
    listener, custodian_fd = listeners
    log = structlog.get_logger()
    log.info("configuration", **changed(config))  # what is not named here has its default
    log.debug("whole configuration", **described(config))
    log.info("placement", plan=placement.text())
    host, port = listener.getsockname()[:2]
    if (dangers := Protection.of(config).dangers) and not is_loopback(host):
        log.warning(f"this address is not protected: {dangers}", host=host)
    url = url_of(config, host, port)
    model = _resolve(config, url)
    takes_text, takes_chat = text_inputs(model, bool(config.gateway.chat_template))
    keep_s = config.gateway.retention_s + config.gateway.request_timeout_s
    facts = StartFacts(
        state_dir=state_dir,
        run_dir=run_dir.path,
        listen_fd=listener.fileno(),
        custodian_fd=custodian_fd,
        model_setting=model.setting,
        model_name=model.name,
        model_digests=digests_of("model", model.setting),
        model_length=model.config.max_position if model.config else 0,
        placement=placement,
        cores=len(os.sched_getaffinity(0)),
        embedding=_embedding_facts(config, url),
        fallback=fallback_facts(config, url),
        have_gateways_changed=note_gateways(state_dir, config.gateways, keep_s, StartTime.now()),
    )
    name = config.model_name or model.name
    groups = build_tree(config, facts)
    layout = placement.summary() + (f"; {facts.fallback.name} as the fallback" if facts.fallback else "")
    server = Server(
        groups, run_dir, config.supervisor, name, url, config.log_format, config.log_level, layout, takes_text, takes_chat,
        str(state_dir) if config.api_keys else "", str(state_dir / AUDIT_FILE) if config.audit_log else "",
        flags_for_tls(config.gateway), zeromq_tcp_of(config, 0),
    )  # fmt: skip
    return server, facts


def _embedding_facts(config: ServerConfig, url: str) -> EmbeddingFacts | None:
    """The embedding model that the configuration names, if any; it is downloaded or converted first if needed.

    Raises: ConfigError."""
    if not config.embedding_model:
        return None
    display = Display("", url, "", is_json=config.log_format == "json")
    try:
        model = open_model(
            config.embedding_model,
            config.embedder,
            lambda what, fraction: display.loading("embedding model", what, fraction),
        )
    finally:
        display.close()
    files = model.files
    return EmbeddingFacts(
        model.name,
        str(model.folder),
        model.max_length,
        model.dimensions,
        is_normalized=files.normalizes,
        prompts=files.prompts,
        default_prompt=files.default_prompt,
        digests=digests_of("embedding_model", str(model.folder), SENTENCE_FILES),
    )


def _resolve(config: ServerConfig, url: str) -> ModelFolder:
    """The folder of the model. Downloads or converts the model first if needed, with a progress bar.

    Raises: ConfigError.
    """
    from gpu_workers.models.resolve import resolve_model

    display, began_s = Display("", url, "", is_json=config.log_format == "json"), time.monotonic()
    try:
        model = resolve_model(config.model, lambda what, fraction: display.loading("model", what, fraction))
    except (ValueError, OSError) as error:
        raise ConfigError(f"model: {error}") from None
    finally:
        display.close()
    took_s = round(time.monotonic() - began_s, 3)
    structlog.get_logger().info("model", name=model.name, folder=model.setting, took_s=took_s)
    return model


def run_server(server: Server, display: Display, link: ParentLink | None = None, target: Server | None = None) -> int:
    """Run the supervisor on an event loop of its own until the server has ended; returns the exit status.

    `target`: of a rolling restart that is under way.

    After a bug of a supervisor with a parent, this process ends at once, so that the next supervisor finds everything in place.
    If its parent is dead, it becomes the parent.
    """
    import asyncio

    import uvloop

    if link is not None and link.has_parent:
        outlive_parent()
        adopt_descendants()

    async def run() -> int:
        return await Supervisor(server, display, link=link, target=target).run()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            exit_status = runner.run(run())
    except Exception:
        if link is None or not link.has_parent:
            raise
        structlog.get_logger().exception("the supervisor failed")
        exit_status = ExitCode.FAULT
    is_replaced = exit_status in (ExitCode.FAULT, ExitCode.HAND_OVER)
    if is_replaced and link is not None and link.has_parent:  # nothing is released: the next supervisor has it
        leave_to_next(exit_status, link, SavedStateFile(server.run_dir.saved_state_path))
    return exit_status
