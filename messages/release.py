"""The release of this server: the name of its package, and its version."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGE = "tardigrade-serve"  # on PyPI
NOT_INSTALLED = "unknown"


@cache
def release_version() -> str:
    """The version of the installed package; `NOT_INSTALLED` for a checkout that runs without an installation."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return NOT_INSTALLED
