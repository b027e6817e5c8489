"""The two commands of an installation: `supervisor`, and `tardigrade`, which is the same under a name that nobody else has.

PyPI has another package named supervisor, a process manager, with a module of that name too. In one folder both work side by
side, because only `__init__.py` is in both. If its folder stands before ours on Python's path, `import supervisor` finds it
instead of ours: then `supervisor` says so, and `tardigrade` puts our folder first, also for the processes that it starts.
`pip uninstall supervisor` takes our `__init__.py` with it, if both were in one folder; Python still finds ours then, but only
where no other package of that name is.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

_PROJECT = "tardigrade-serve"
_PROGRAM = "supervisor.__main__"
_OURS = "__main__.py"  # PyPI's package has none
_ABORTED = 1  # as click ends a command that Ctrl-C stops
_UNUSABLE = 2  # as ExitCode.UNUSABLE, which may not be importable here


def supervisor() -> None:
    """The command `supervisor`. Exits with status 2 where the module of that name is not ours."""
    if (other := foreign_folder()) is not None:
        print(
            f"supervisor: expected Tardigrade's module `supervisor` in {_home()}, got that of PyPI's package supervisor in"
            f" {other}, which comes first on Python's path; the command `tardigrade` works here, and so does an environment of"
            f" its own: python3 -m venv DIR && DIR/bin/pip install {_PROJECT}",
            file=sys.stderr,
        )
        sys.exit(_UNUSABLE)
    _run()


def tardigrade() -> None:
    """The command `tardigrade`. It finds our modules also where PyPI's package supervisor comes first."""
    if (other := foreign_folder()) is not None:
        if not (_home() / "supervisor" / "__init__.py").is_file():
            again = f"{sys.executable} -m pip install --force-reinstall --no-deps {_PROJECT}"
            print(
                f"tardigrade: expected supervisor/__init__.py in {_home()}, got none: the removal of PyPI's package supervisor"
                f" takes it along, and another copy of that package is in {other}; {again} brings it back",
                file=sys.stderr,
            )
            sys.exit(_UNUSABLE)
        sys.path.insert(0, str(_home()))
        others = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(_home()), *([others] if others else [])]
        )  # for processes that it starts
        importlib.invalidate_caches()
    _run()


def foreign_folder() -> str | None:
    """Where `import supervisor` finds another package than ours; None if it finds ours. Nothing is imported."""
    spec = importlib.util.find_spec("supervisor")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    is_ours = any((Path(folder) / _OURS).is_file() for folder in folders)
    return None if is_ours or not folders else folders[0]


def _home() -> Path:
    """The folder with our packages."""
    return Path(__file__).resolve().parent


def _run() -> None:
    try:
        program = importlib.import_module(_PROGRAM)
    except KeyboardInterrupt:  # the import takes seconds on a busy machine; the program answers Ctrl-C in the same words later
        print("\nAborted!", file=sys.stderr)
        sys.exit(_ABORTED)
    program.main()


if __name__ == "__main__":
    tardigrade()
