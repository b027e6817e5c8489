"""What the parent of the supervisor executes in place for a rolling restart: the parent, as the program on disk has it now."""

from __future__ import annotations

import sys

from supervisor.parent.parent import start_under_parent


def main() -> int:
    """Be the parent; returns in each supervisor that it forks, with the exit status of the server."""
    link = start_under_parent()
    from supervisor.start import resume

    return resume(link)


if __name__ == "__main__":
    sys.exit(main())
