"""What SIGHUP does to a server that no terminal has started: its configuration is read again, and what may change changes.

    keys, tenants.json, certificates    their readers notice a change by themselves
    log_level                           at once, in all processes
    settings of cheap processes         those of these groups are replaced one after the other, and no request is lost
    all else                            is refused or left as it is; the log says which command applies it

While a process is being replaced, or the server is drained, a reload that replaces processes waits, and reads the configuration
as it is then.

In a terminal SIGHUP means that it was closed; the server then finishes its requests and ends, as after SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import structlog

from messages.errors import ConfigError
from messages.ids import role_of
from messages.log_file.level_file import write_level
from supervisor.audit.reload_audit import ReloadAudit, changed_keys
from supervisor.config.server_config import ServerConfig
from supervisor.directories.server import Server, as_json
from supervisor.operator.command_line import config_of
from supervisor.policy.child_spec import Group
from supervisor.policy.roll import order_of_groups
from supervisor.restart.reload import reloaded

_CHEAP_ROLES = frozenset(("accounts", "cache_directory", "speculation", "scheduler", "gateway"))
_RESTART = "supervisor restart --rolling"
_LOOK_S = 0.5  # between two looks whether a reload that waits is possible


class _NotNow(Exception):
    """The reload is not possible now, for this reason."""


@dataclass(frozen=True)
class ConfigChanges:
    """What differs between a server and its configuration. `cheap`, `dear`: titles of groups that differ; the latter need a
    rolling restart. `own`: keys of the supervisor itself, which need one too."""

    cheap: list[str]
    dear: list[str]
    own: list[str]
    is_level_other: bool


def changes_of(server: Server, present: Iterable[Group], target: Server) -> ConfigChanges:
    """What SIGHUP would change. `present`: the groups as they are now."""
    wanted = {group.title: group for group in target.groups}
    others = [group for group in present if wanted[group.title].children != group.children]
    cheap = [group.title for group in others if all(role_of(child.name) in _CHEAP_ROLES for child in group.children)]
    own = [key for key in ("settings", "log_format", "log_file", "model_name") if getattr(server, key) != getattr(target, key)]
    dear = [group.title for group in others if group.title not in cheap]
    return ConfigChanges(cheap, dear, own, server.log_level != target.log_level)


def with_cheap_changes(server: Server, present: tuple[Group, ...], target: Server, changes: ConfigChanges) -> Server:
    """The server after SIGHUP: as before, but with the new log level and the groups whose processes are cheap."""
    wanted = {group.title: group for group in target.groups}
    groups = tuple(wanted[group.title] if group.title in changes.cheap else group for group in present)
    return replace(server, groups=groups, log_level=target.log_level, origin=target.origin)


def has_terminal() -> bool:
    """True if this process has a terminal that may be closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class ReloadOnHangup:
    """Handles SIGHUP for one supervisor. `groups`: as they are now. `begin(server, titles)`: replace these groups, or say why
    that is not possible now. `may_begin`: False as long as it would say so; it is asked while a reload waits. `later(s, call)`:
    call this after so many seconds; by default on the running event loop."""

    def __init__(
        self,
        server: Server,
        groups: Callable[[], tuple[Group, ...]],
        active_of_standby: Callable[[], dict[str, str]],
        begin: Callable[[Server, list[str]], str],
        is_in_terminal: bool | None = None,
        configuration: Callable[[dict[str, object]], ServerConfig] = config_of,
        may_begin: Callable[[], bool] = lambda: True,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._server, self._groups, self._active_of_standby = server, groups, active_of_standby
        self._begin, self._configuration = begin, configuration
        self._may_begin, self._later, self._is_waiting = may_begin, later or _call_later, False
        self._is_in_terminal = has_terminal() if is_in_terminal is None else is_in_terminal
        self.audit = ReloadAudit(Path(server.audit_file) if server.audit_file else None)
        self._log = structlog.get_logger()

    def handle(self) -> bool:
        """Reload the configuration, as soon as that is possible. Returns False if SIGHUP means that the terminal was closed."""
        if self._is_in_terminal:
            return False
        if not self._is_waiting:  # otherwise the one that waits reads what the configuration is then
            self._try()
        return True

    def _try(self) -> None:
        was_waiting, self._is_waiting = self._is_waiting, False
        try:
            self._reload()
        except (ConfigError, OSError) as error:
            self._log.error("configuration not reloaded: the server goes on as it is", reason=str(error))
            self.audit.note(refusal=str(error))
        except _NotNow as error:
            if not was_waiting:
                self._log.warning("the configuration will be reloaded as soon as that is possible", reason=str(error))
            self._wait()

    def _wait(self) -> None:
        self._is_waiting = True
        self._later(_LOOK_S, lambda: self._try() if self._may_begin() else self._wait())

    def _reload(self) -> None:
        server, groups = self._server, self._groups()
        if server.origin is None:
            raise ConfigError("the server has not written down its settings; stop and start it")
        config = self._configuration(server.origin.flags)
        if config.log_level == "auto":  # the start has decided what that is
            config = msgspec.structs.replace(config, log_level=server.log_level)
        target, changed = reloaded(server, config, server.origin.flags), changed_keys(server.origin.config, as_json(config))
        changes = changes_of(server, groups, target)
        after = with_cheap_changes(server, groups, target, changes)
        if changes.cheap and (refusal := self._begin(after, order_of_groups(changes.cheap, self._active_of_standby()))):
            raise _NotNow(refusal)
        if not changes.cheap:
            after.save()
        self._server = after
        if changes.is_level_other:
            write_level(server.run_dir.path, after.log_level)
        self._log.info("configuration reloaded", replaced=changes.cheap, log_level=after.log_level)
        self.audit.note(changed=changed, replaced=changes.cheap, needs_restart=[*changes.dear, *changes.own])
        if changes.dear or changes.own:
            self._log.warning("some changes need a rolling restart", groups=changes.dear, own=changes.own, command=_RESTART)


def _call_later(after_s: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(after_s, call)
