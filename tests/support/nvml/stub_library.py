"""Builds the stand-in for NVML, and tells it what its devices say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("stub.c")
_LIBRARY = "libnvidia-ml.so.1"


class StubNvml:
    """The library in a folder of its own. A process that starts with `environment` finds it where the driver's would be."""

    def __init__(self, folder: Path) -> None:
        """Build it. Skips the test without a C compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / _LIBRARY), str(_SOURCE)], check=True)
        self._values = folder / "values"
        paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        self.environment = {"LD_LIBRARY_PATH": ":".join(paths), "NVML_STUB_FILE": str(self._values)}
        self.library = folder / _LIBRARY

    def say(self, **values: int) -> None:
        """What all devices say from now on; stub.c has the keys."""
        new = self._values.with_suffix(".new")
        new.write_text("".join(f"{key} {value}\n" for key, value in values.items()))
        new.replace(self._values)  # a call reads the old values or the new ones
