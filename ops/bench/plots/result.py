"""A measured result as a file: bars in panels, the conditions of the measurement, and the document that has the figures."""

from __future__ import annotations

from pathlib import Path

import msgspec

RESULTS = Path(__file__).parents[1] / "results"
PICTURES = Path(__file__).parents[3] / "docs" / "media"


class Bar(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One bar. `value` is None where nothing could be measured; `text` says why, in the place of a number."""

    label: str
    series: str
    value: float | None
    text: str = ""


class Chart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Bars of one scale, which begins at 0. `unit` stands behind each number."""

    title: str
    unit: str
    bars: tuple[Bar, ...]


class MeasuredResult(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a picture shows. `source` is a document of the repository and the title of its section with these figures."""

    title: str
    conditions: str
    source: str
    section: str
    panels: tuple[Chart, ...]

    @property
    def series(self) -> tuple[str, ...]:
        """The series in the order of their first bars."""
        return tuple(dict.fromkeys(bar.series for panel in self.panels for bar in panel.bars))


def read_results(folder: Path = RESULTS) -> dict[str, MeasuredResult]:
    """The results of a folder by the names of their files, without `.json`.

    Raises: ValueError for a file that is no result; it names the file.
    """
    found: dict[str, MeasuredResult] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = msgspec.json.decode(path.read_bytes(), type=MeasuredResult)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path.name}: {error}") from None
    return found
