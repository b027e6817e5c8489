"""Numbers of models for people: "1.3 GB", "135 M"."""

from __future__ import annotations

_STEPS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def size_text(n_bytes: int) -> str:
    """Bytes with three digits: "640 MB", "1.31 GB"."""
    return f"{count_text(n_bytes)}B" if n_bytes >= 1000 else f"{n_bytes} B"


def count_text(number: int) -> str:
    """A number with three digits: "135 M", "8.03 G"."""
    for step, letter in _STEPS:
        if number >= step:
            return f"{number / step:.3g} {letter}" if number < 999.5 * step else f"{number / step:.0f} {letter}"
    return str(number)
