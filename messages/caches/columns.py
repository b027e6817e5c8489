"""What messages about pages have in common: columns of equal length, one row for each page."""

from __future__ import annotations

import msgspec


def check_columns(message: msgspec.Struct, most: int, *tables: tuple[str, ...]) -> None:
    """Check arrays of a message. tables: the names of arrays that describe the same pages; most: pages of one table.

    Raises: ValueError naming the first array that is too long, or of another length than the first one of its table.
    """
    for first, *others in tables:
        n_pages = len(getattr(message, first))
        if n_pages > most:
            raise ValueError(f"{first}: expected at most {most} pages, got {n_pages}")
        for name in others:
            if len(getattr(message, name)) != n_pages:
                raise ValueError(f"{name}: expected {n_pages} as in {first}, got {len(getattr(message, name))}")
