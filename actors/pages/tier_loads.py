"""The names of the rules for loads from the host tier, as the configuration has them."""

from __future__ import annotations

from enum import StrEnum


class TierLoads(StrEnum):
    """When pages come back from the host tier."""

    FASTER = "faster"  # if that is expected to take less time than to compute them
    ALWAYS = "always"
