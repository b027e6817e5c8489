"""A supervisor begins also where the machine has no room for the one that it leaves for the next death."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from supervisor.parent.link import Kept, ParentLink
from supervisor.restart import successor


@pytest.mark.parametrize("refused", ["os.listdir", "socket.socketpair", "os.fork"])
def test_one_that_cannot_be_made_now_is_asked_for_later(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where all descriptors of the machine are in use, or all process ids."""
    seen = list[str]()

    def refuse(*_: Any, **__: Any) -> Any:
        seen.append(refused)
        raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    link = ParentLink()
    link.lacks_spare, link.kept["spare:gateway/0"] = True, Kept("", -1)
    monkeypatch.setattr(successor.os, "listdir", lambda path: ["1"])
    monkeypatch.setattr(f"supervisor.restart.successor.{refused}", refuse)
    successor.leave_next(link)
    assert (seen, link.lacks_spare) == ([refused], True)
