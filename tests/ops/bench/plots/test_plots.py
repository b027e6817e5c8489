"""The plots of the documents are drawn from results whose every figure stands in its document."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.bench.__main__ import main
from ops.bench.plots.bars import picture
from ops.bench.plots.curves import MeasuredCurves, read_curves
from ops.bench.plots.result import PICTURES, Bar, Chart, MeasuredResult, read_results
from ops.bench.plots.result import RESULTS as FOLDER
from tests.support.documents.code_blocks import REPO

RESULTS, CURVES = read_results(), read_curves(FOLDER)
BAR = Bar("a kill", "ours", 0.5)
RESULT = MeasuredResult("What < a kill costs", "on two cores", "docs/a.md", "", (Chart("pauses", "s", (BAR,)),))


def section_of(result: MeasuredResult | MeasuredCurves) -> str:
    """The text of the section that has the figures of a result."""
    text = (REPO / result.source).read_text(encoding="utf-8")
    begun = re.split(rf"^#+ {re.escape(result.section)}$", text, flags=re.MULTILINE)
    assert len(begun) == 2, f"{result.source} has no section {result.section}"
    return re.split(r"^#", begun[1], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_every_figure_stands_in_the_section_that_is_named(name: str) -> None:
    numbers = {float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", section_of(RESULTS[name]))}
    bars = [bar for panel in RESULTS[name].panels for bar in panel.bars]
    assert [bar for bar in bars if bar.value is not None and bar.value not in numbers] == []
    assert [bar for bar in bars if bar.value is None and not bar.text] == []
    assert f"media/{name}.svg" in section_of(RESULTS[name]), "the section shows the picture"


@pytest.mark.parametrize("name", sorted(CURVES))
def test_every_point_of_a_curve_stands_in_the_table_of_its_section(name: str) -> None:
    text = section_of(CURVES[name])
    table = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    policies = table[0][2:]
    told = {
        (row[0], policy, int(row[1].replace(",", "")), float(cell.rstrip(" %")))
        for row in table
        if row[0] in CURVES[name].percent
        for policy, cell in zip(policies, row[2:], strict=True)
    }
    curves = CURVES[name].percent.items()
    assert told == {
        (t, p, size, share) for t, by_policy in curves for p, points in by_policy.items() for size, share in points.items()
    }
    assert f"media/{name}.svg" in text, "the section shows the picture"


def test_the_pictures_are_what_is_drawn() -> None:
    found = CliRunner().invoke(main, ["plots", "--check"])
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize("name", sorted(RESULTS))
def test_a_picture_is_whole_and_has_both_schemes(name: str) -> None:
    text = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)
    words = " ".join(root.itertext())
    assert all(bar.label in words and bar.series in words for panel in RESULTS[name].panels for bar in panel.bars)
    assert "prefers-color-scheme:dark" in text
    assert not re.search(r"url\(|href|@import", text), "a picture asks for nothing else"


def test_a_bar_has_the_length_of_its_value() -> None:
    bars = (BAR, Bar("a pause", "ours", 1.0), Bar("no answer", "theirs", None, "lost"))
    drawn = picture(MeasuredResult("t", "c", "docs/a.md", "", (Chart("pauses", "s", bars),)))
    widths = [float(width) for width in re.findall(r'class="s\d" x="\d+" y="\d+" width="([\d.]+)" height="13"', drawn)]
    assert widths[0] * 2 == widths[1]
    assert widths[2] == 0
    assert ">lost<" in drawn


def test_texts_are_escaped_and_too_many_series_are_refused() -> None:
    assert "What &lt; a kill costs" in picture(RESULT)
    many = tuple(Bar("a", f"series {number}", 1.0) for number in range(5))
    with pytest.raises(ValueError, match="expected at most 4 series, got 5"):
        picture(MeasuredResult("t", "c", "docs/a.md", "", (Chart("p", "", many),)))


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"title": "t"}')
    called = CliRunner().invoke(main, ["plots", "--results", str(tmp_path), "--out", str(tmp_path)])
    assert called.exit_code == 1
    assert "broken.json: Object missing required field" in called.output
