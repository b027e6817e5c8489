"""Any name of transformers, of any type. For three imports pyright would parse its 2,900 files: 95 s of a core, and 1.3 GB."""

from typing import Any

def __getattr__(name: str) -> Any: ...
