"""The cache directory's section of the configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec


class DirectorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds of the directory."""

    # pages that are known, over all replicas; about 100 bytes each
    max_hashes: Annotated[int, msgspec.Meta(ge=1024, le=2**32)] = 8_000_000
    similar_bytes: Annotated[int, msgspec.Meta(ge=1)] = 64 << 20  # of answers that are kept for similar questions
    similar_ttl_s: Annotated[float, msgspec.Meta(gt=0.0, le=86_400.0 * 30)] = 3600.0  # such an answer is kept for this time
    keeps_similar: bool = False  # such answers are kept
    answer_bytes: Annotated[int, msgspec.Meta(ge=1)] = 64 << 20  # of answers for equal requests, which all gateways share
    answer_ttl_s: Annotated[float, msgspec.Meta(gt=0.0)] = 3600.0  # such an answer is kept for this time
    keeps_answers: bool = False  # such answers are kept; false: no answers are, and those in the file are removed
    answers_file: str = ""  # where all answers are written
    answers_file_s: Annotated[float, msgspec.Meta(gt=0.0, le=86_400.0)] = 30.0  # between two files
