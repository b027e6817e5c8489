"""With `SITE` in PYTHONPATH, each process of a server can be made to run no Python code any more, without being stopped."""

from __future__ import annotations

from pathlib import Path

FOLDER = "TARDIGRADE_TEST_FREEZE"  # the environment variable with the folder of `freeze`
SITE = Path(__file__).parent / "site"


def freeze(folder: Path, pid: int) -> None:
    """This process holds its interpreter's lock until it is killed."""
    (folder / str(pid)).touch()
