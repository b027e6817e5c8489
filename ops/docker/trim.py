"""Make an installation smaller: `python trim.py SITE_PACKAGES NAMES`. The image does it once, after pip.

It removes what a server that runs never reads: symbol tables, tests of libraries, and what is for compilers. NAMES is a file
with names in SITE_PACKAGES, one a line, that are left as they are: those in a layer below, which would only be copied.
"""

from __future__ import annotations

import shutil
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_TESTS = "tests"  # a folder in a package
_FOR_COMPILERS = frozenset({".pyi", ".pyx", ".pxd", ".pxi", ".c", ".h", ".a"})
_FOR_BUILDERS = ("numpy/f2py", "numpy/distutils")
_READ_AT_MOST_ONCE = ("pygments/lexers/__pycache__", "pygments/styles/__pycache__")  # byte code of hundreds of languages
_ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
# ELF-64 object file format, version 1.5: of the file header, and of one entry of the program header table
_FILE_HEADER, _SEGMENT = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
_SECTION_FIELDS = {6: 0, 11: 0, 12: 0, 13: 0}  # of the file header: there is no table of sections


def trim(folder: Path, but_not: Iterable[str] = ()) -> int:
    """Make the packages in `folder` smaller, but not those of these names. Returns how many bytes have gone.

    Raises: OSError."""
    kept = set(but_not)
    packages = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name not in kept]
    before_bytes = size_bytes(packages)
    unread = [folder / name for name in (*_FOR_BUILDERS, *_READ_AT_MOST_ONCE) if name.partition("/")[0] not in kept]
    for path in [*unread, *(found for package in packages for found in package.rglob(_TESTS))]:
        shutil.rmtree(path, ignore_errors=True)
    for path in _files(packages):
        if path.suffix in _FOR_COMPILERS:
            path.unlink()
        elif ".so" in path.suffixes:
            cut_symbols(path)
    return before_bytes - size_bytes(packages)


def cut_symbols(path: Path) -> None:
    """Cut off what no loader reads: all after the last byte of a segment. Symbols for linking are in a segment; those for
    debuggers are not. A file that is no ELF file of 64 bits, or has nothing to cut, is left as it is. Raises: OSError."""
    with path.open("r+b") as file:
        head = file.read(_FILE_HEADER.size)
        if len(head) < _FILE_HEADER.size or not head.startswith(_ELF64_LITTLE_ENDIAN):
            return
        fields = list(_FILE_HEADER.unpack(head))
        table_offset, entry_bytes, n_segments = fields[5], fields[9], fields[10]
        file.seek(table_offset)
        table = file.read(entry_bytes * n_segments)
        ends = [table_offset + len(table)]
        for at in range(0, len(table), entry_bytes):
            segment = _SEGMENT.unpack_from(table, at)
            ends.append(segment[2] + segment[5])  # its place and its length in the file
        if max(ends) < file.seek(0, 2):
            for field, value in _SECTION_FIELDS.items():
                fields[field] = value
            file.seek(0)
            file.write(_FILE_HEADER.pack(*fields))
            file.truncate(max(ends))


def size_bytes(paths: Iterable[Path]) -> int:
    """How many bytes the files in these folders have."""
    return sum(path.stat().st_size for path in _files(paths))


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    target, names = (Path(argument) for argument in sys.argv[1:])
    print(f"{trim(target, names.read_text(encoding='utf-8').split()) / 1e6:.1f} MB removed")
