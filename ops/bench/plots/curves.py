"""A measured result that is drawn as curves: the share of pages found, over the size of the cache, by trace and policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ops.bench.cache.plot import picture

FOLDER = "curves"  # in that of the results


class MeasuredCurves(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a picture shows. `source` is a document of the repository and `section` the title of its section with these figures.
    `percent`: pages found, by trace, policy and pages of the cache."""

    conditions: str
    source: str
    section: str
    percent: Mapping[str, Mapping[str, Mapping[int, float]]]

    def picture(self) -> str:
        """It as SVG. Equal results, equal bytes."""
        return picture(
            {
                trace: {policy: {size: share / 100 for size, share in curve.items()} for policy, curve in curves.items()}
                for trace, curves in self.percent.items()
            }
        )


def read_curves(results: Path) -> dict[str, MeasuredCurves]:
    """The curves below a folder of results by the names of their files, without `.json`.

    Raises: ValueError for a file that is no such result; it names the file.
    """
    found: dict[str, MeasuredCurves] = {}
    for path in sorted((results / FOLDER).glob("*.json")):
        try:
            found[path.stem] = msgspec.json.decode(path.read_bytes(), type=MeasuredCurves)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path.name}: {error}") from None
    return found
