"""What the parent of the supervisor executes in place for a rolling restart: the parent, as the program on disk has it now."""

from __future__ import annotations

from typing import NoReturn

from supervisor.parent.parent import start_under_parent


def main() -> NoReturn:
    """Be the parent. Each supervisor that it forks exits with the status of the server."""
    link = start_under_parent()
    from supervisor.start import resume
    from supervisor.succession import leave

    leave(resume(link))


if __name__ == "__main__":
    main()
