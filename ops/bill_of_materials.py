"""Checks the software bill of materials that `make sbom` has written: `python -m ops.bill_of_materials FILE [--pins]`.

The bill is a CycloneDX document (cyclonedx.org) of the packages in the virtual environment. Every direct dependency of
pyproject.toml must be in it with a version. `--pins` prints all packages with their versions, as `make audit` looks them up.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def normalised(name: str) -> str:
    """A package's name as registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def versions_in(bill: str) -> dict[str, str]:
    """The version of each package in a bill; "" where it has none. Raises: ValueError when it is not a CycloneDX document."""
    document = json.loads(bill)
    if not isinstance(document, dict) or document.get("bomFormat") != "CycloneDX":
        raise ValueError("bill of materials: expected a CycloneDX document")
    return {normalised(one["name"]): one.get("version", "") for one in document.get("components", ())}


def missing_from(versions: Mapping[str, str], pyproject: str) -> list[str]:
    """The direct dependencies that have no version in a bill."""
    direct = [_NAME.match(text) for text in tomllib.loads(pyproject)["project"]["dependencies"]]
    names = [normalised(found.group()) for found in direct if found]
    return [name for name in names if not versions.get(name)]


def pins_of(versions: Mapping[str, str]) -> list[str]:
    """One line for each package. A build's own mark, as in 2.13.0+cpu, is left out: advisories know the version alone."""
    return [f"{name}=={version.partition('+')[0]}" for name, version in sorted(versions.items()) if version]


def main(arguments: list[str]) -> int:
    """Returns the exit status: 1 when something is missing."""
    versions = versions_in(Path(arguments[0]).read_text(encoding="utf-8"))
    if missing := missing_from(versions, Path("pyproject.toml").read_text(encoding="utf-8")):
        print(f"{arguments[0]}: expected every direct dependency, got none of {', '.join(missing)}", file=sys.stderr)
        return 1
    print("\n".join(pins_of(versions)) if "--pins" in arguments else f"{arguments[0]}: {len(versions)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
