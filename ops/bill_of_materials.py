"""Checks the software bill of materials that `make sbom` has written: `python -m ops.bill_of_materials FILE [OPTION]`.

The bill is a CycloneDX document (cyclonedx.org) of the packages in the virtual environment. Every direct dependency of
pyproject.toml must be in it with a version. `--with-copies` adds what this repository has copies of. `--pins` prints all
packages of Python with their versions, as `make audit` looks them up.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OTHER_REGISTRIES = ("pkg:npm/",)


@dataclass(frozen=True)
class VendoredFile:
    """A file of another project that this repository has a copy of. `purl`: its package, as CycloneDX names it."""

    name: str
    version: str
    licence: str
    purl: str
    path: str

    def component(self, repository: Path) -> dict[str, Any]:
        """It as CycloneDX has it, with the digest of the copy."""
        digest = hashlib.sha256((repository / self.path).read_bytes()).hexdigest()
        return {
            "type": "library",
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "licenses": [{"license": {"id": self.licence}}],
            "purl": self.purl,
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }


COPIES = (
    VendoredFile("uplot", "1.6.32", "MIT", "pkg:npm/uplot@1.6.32", "actors/gateway/page/assets/vendor/uPlot.iife.min.js"),
)


def normalised(name: str) -> str:
    """A package's name as registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def versions_in(bill: str) -> dict[str, str]:
    """The version of each package of Python in a bill; "" where it has none.

    Raises: ValueError when it is not a CycloneDX document.
    """
    document = json.loads(bill)
    if not isinstance(document, dict) or document.get("bomFormat") != "CycloneDX":
        raise ValueError("bill of materials: expected a CycloneDX document")
    components = [one for one in document.get("components", ()) if not one.get("purl", "").startswith(_OTHER_REGISTRIES)]
    return {normalised(one["name"]): one.get("version", "") for one in components}


def with_copies(bill: str, repository: Path) -> str:
    """A bill with the copies that a repository has of files of other projects."""
    document = json.loads(bill)
    document["components"] = [*document.get("components", ()), *(one.component(repository) for one in COPIES)]
    return json.dumps(document, indent=2) + "\n"


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
    bill = Path(arguments[0])
    if "--with-copies" in arguments:
        bill.write_text(with_copies(bill.read_text(encoding="utf-8"), Path()), encoding="utf-8")
    versions = versions_in(bill.read_text(encoding="utf-8"))
    if missing := missing_from(versions, Path("pyproject.toml").read_text(encoding="utf-8")):
        print(f"{arguments[0]}: expected every direct dependency, got none of {', '.join(missing)}", file=sys.stderr)
        return 1
    print("\n".join(pins_of(versions)) if "--pins" in arguments else f"{arguments[0]}: {len(versions)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
