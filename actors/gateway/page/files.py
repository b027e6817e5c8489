"""The files of the page: plain HTML, CSS and JavaScript, which ask no other host for anything."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import msgspec

_FOLDER = Path(__file__).parent / "assets"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".uPlot": "text/plain; charset=utf-8",  # its licence
}
INDEX = "index.html"


class PageFile(msgspec.Struct, frozen=True):
    """One file. `tag`: changes with its content."""

    content: bytes
    media_type: str
    tag: str


@lru_cache(maxsize=64)
def page_file(name: str) -> PageFile | None:
    """The file with this path below the folder of the page; None if there is none. The first call of each name reads it."""
    if name not in _names():
        return None
    content = (_FOLDER / name).read_bytes()
    return PageFile(content, _TYPES[Path(name).suffix], f'"{blake2b(content, digest_size=12).hexdigest()}"')


@lru_cache(maxsize=64)
def _names() -> frozenset[str]:
    """All names that can be asked for: no other path is ever opened."""
    return frozenset(path.relative_to(_FOLDER).as_posix() for path in _FOLDER.rglob("*") if path.suffix in _TYPES)
