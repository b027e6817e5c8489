"""Help texts that name what the code has, and import it only when somebody reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class LateHelpOption(click.Option):
    """A flag whose help is made when it is shown. `late_help`: makes it."""

    def __init__(self, *arguments: Any, late_help: Callable[[], str], **more: Any) -> None:
        self._late_help = late_help
        super().__init__(*arguments, **more)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The flag and its help, as click writes them."""
        self.help = self._late_help()
        return super().get_help_record(ctx)


def eviction_help() -> str:
    """The help of --eviction."""
    from actors.pages.eviction.choice import EvictionName

    return f"Which cached pages are overwritten first: {', '.join(name.value for name in EvictionName)}. Default: lru."


def policy_help() -> str:
    """The help of --policy."""
    from actors.scheduler.sequences.policy import PolicyName

    return f"Who is computed first: {', '.join(name.value for name in PolicyName)}. Default: priority."
