"""What `ops/docker/trim.py` removes of an installation, and that the rest still works."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ops.docker.trim import cut_symbols, trim

CALL_S = 120.0


def written(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_tests_and_files_for_compilers_go_and_all_else_stays(tmp_path: Path) -> None:
    gone = [
        written(tmp_path / name)
        for name in ("numpy/tests/a.py", "numpy/lib/tests/b.py", "numpy/f2py/c.py", "numpy/d.pyi", "zmq/e.h",
                     "pygments/lexers/__pycache__/f.pyc")
    ]  # fmt: skip
    stays = [
        written(tmp_path / name)
        for name in ("numpy/testing/a.py", "numpy/b.py", "zmq/tests.py", "pygments/lexers/f.py", "pygments/__pycache__/g.pyc",
                     "tests.py", "below/tests/h.py", "below/i.pyi")
    ]  # fmt: skip
    link = tmp_path / "numpy" / "link.h"
    link.symlink_to(tmp_path / "below" / "i.pyi")
    assert trim(tmp_path, ["below"]) > 0
    assert [path for path in gone if path.exists()] == []
    assert [path for path in (*stays, link) if not path.exists()] == []


def test_what_is_no_elf_file_is_left_as_it_is(tmp_path: Path) -> None:
    for content in (b"", b"\x7fELF\x02\x01", b"GROUP ( libc.so.6 )" * 20, b"\x7fELF\x01\x01" + bytes(200)):
        path = written(tmp_path / "a.so", content)
        cut_symbols(path)
        assert path.read_bytes() == content


@pytest.mark.skipif(sys.platform != "linux", reason="extensions are ELF files on Linux alone")
def test_an_extension_without_its_symbols_is_smaller_and_works(tmp_path: Path) -> None:
    """One with Cython's symbols, as wheels carry them. A second cut finds nothing."""
    found = importlib.util.find_spec("httptools.parser.parser")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parents[1]
    shutil.copytree(package, tmp_path / "httptools")
    before = sum(path.stat().st_size for path in tmp_path.rglob("*.so"))
    trim(tmp_path)
    after = sum(path.stat().st_size for path in tmp_path.rglob("*.so"))
    assert after < before / 2
    assert trim(tmp_path) == 0
    program = "import httptools; print(httptools.__file__, httptools.parse_url(b'http://a/b').path)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=CALL_S,
        check=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(tmp_path / "httptools" / "__init__.py"), "b'/b'"]
