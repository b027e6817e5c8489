"""The version of this server, installed or not."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

from messages import release


def test_the_version_is_that_of_the_package() -> None:
    assert release.release_version() == version("tardigrade-serve")


def test_a_checkout_that_was_never_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The live page, /version and the disk tier ask for it there too."""

    def refuse(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(release, "version", refuse)
    release.release_version.cache_clear()
    try:
        assert release.release_version() == release.NOT_INSTALLED
    finally:
        release.release_version.cache_clear()
