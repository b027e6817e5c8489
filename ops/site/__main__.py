"""Builds the site: `python -m ops.site --mkdocs PROGRAM [--out dist/site]`. `make docs` installs the program and calls this.

The pages are written to build/site first, with links that fit; then mkdocs makes HTML of them. Its warnings are errors, such
as that a link or an anchor leads nowhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from ops.site.navigation import Chapter, present
from ops.site.page_texts import REPO, LeadsNowhere, write_pages

_SETTINGS = Path(__file__).with_name("mkdocs.yml")
_ASSETS = Path(__file__).with_name("assets")
_SAME_TIME = {"SOURCE_DATE_EPOCH": "0", "NO_MKDOCS_2_WARNING": "1"}  # the same pages give the same site; no news of the theme


@click.command()
@click.option("--mkdocs", default="mkdocs", show_default=True, help="The program mkdocs, with the theme material.")
@click.option("--out", type=click.Path(path_type=Path), default=REPO / "dist" / "site", help="Where to write; dist/site.")
@click.option("--work", type=click.Path(path_type=Path), default=REPO / "build" / "site", help="For what lies between.")
def main(mkdocs: str, out: Path, work: Path) -> None:
    """Build the documents as a site. Exit status 1 where a page has a fault, which is named."""
    sections = present(lambda document: (REPO / document).is_file())
    pages = work.absolute() / "pages"
    try:
        write_pages(pages, sections)
    except LeadsNowhere as fault:
        raise click.ClickException(str(fault)) from None
    for asset in _ASSETS.iterdir():
        shutil.copy(asset, pages)
    settings = work.absolute() / "mkdocs.yml"
    settings.write_bytes(settings_text(sections, pages, out.absolute()))
    command = [mkdocs, "build", "--strict", "--clean", "--config-file", str(settings)]  # with --quiet it counts no warnings
    built = subprocess.run(command, env={**os.environ, **_SAME_TIME}, capture_output=True, text=True, check=False)
    if built.returncode:
        raise click.ClickException(f"the site has faults\n{built.stdout}{built.stderr}")
    click.echo(f"{out}: open index.html there, or run python -m http.server --directory {out}", err=True)


def settings_text(sections: Sequence[Chapter], pages: Path, out: Path) -> bytes:
    """The settings of mkdocs: those of mkdocs.yml beside this file, with folders and navigation. JSON is YAML, too."""
    navigation = [{section.title: [{page.title: page.name} for page in section.pages]} for section in sections]
    return msgspec.json.encode({"INHERIT": str(_SETTINGS), "docs_dir": str(pages), "site_dir": str(out), "nav": navigation})


if __name__ == "__main__":
    main(prog_name="python -m ops.site")
