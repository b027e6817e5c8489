"""Draws the plots of the documents from measured results, which are JSON files with their conditions.

python -m ops.bench plots                      writes docs/media/NAME.svg for each ops/bench/results/NAME.json, and for
                                               those in its folder curves, which are drawn as lines
python -m ops.bench plots --check              exit status 1 if a picture differs from what would be drawn
python -m ops.bench plots --results DIR --out DIR
"""

from __future__ import annotations

from pathlib import Path

import click

from ops.bench.plots.bars import picture
from ops.bench.plots.curves import read_curves
from ops.bench.plots.result import PICTURES, RESULTS, read_results


@click.command()
@click.option("--results", type=click.Path(path_type=Path, exists=True), default=RESULTS, help="Folder of the JSON files.")
@click.option("--out", type=click.Path(path_type=Path), default=PICTURES, help="Folder of the pictures.")
@click.option("--check", is_flag=True, help="Write nothing; exit status 1 if a picture differs.")
def command(results: Path, out: Path, check: bool) -> None:
    """Draw the plots of the documents."""
    try:
        drawn = {out / f"{name}.svg": picture(result) for name, result in read_results(results).items()}
        drawn |= {out / f"{name}.svg": result.picture() for name, result in read_curves(results).items()}
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    stale = [path for path, text in drawn.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if check and stale:
        raise click.ClickException(f"{', '.join(path.name for path in stale)}: run python -m ops.bench plots")
    out.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(drawn[path], encoding="utf-8")
    click.echo(f"{len(drawn)} pictures, {len(stale)} of them new", err=True)
