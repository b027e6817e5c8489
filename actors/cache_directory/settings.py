"""The cache directory's section of the configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec


class DirectorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of the directory."""

    # pages that are known, over all replicas; about 100 bytes each
    max_hashes: Annotated[int, msgspec.Meta(ge=1024, le=2**32)] = 8_000_000
