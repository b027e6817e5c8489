"""One request of a trace, as far as it matters for a prefix cache: when it came, how long it took, and which pages it had.

A file of a trace has one JSON object a line, `{"at_ms": 1500, "took_ms": 800, "prompt_pages": 14, "pages": [[0, 12], [95,
4]]}`:

| field | meaning |
|---|---|
| `at_ms`, `took_ms` | the beginning since that of the trace, and the time until the end, in milliseconds |
| `prompt_pages` | full pages that are looked up: of the prompt without its last token, which is always computed |
| `pages` | all full pages at the end, prompt and answer, as runs of numbers: [first, how many] |

Pages have numbers in the order in which they first appear. Two requests have the same number at one place where all their
tokens up to the end of that page are equal. So a file tells nothing of what was asked or answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**48)]


class TracedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a trace; see the head of this file."""

    at_ms: _Number
    took_ms: _Number
    prompt_pages: _Number
    pages: list[tuple[_Number, Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]]]

    @property
    def numbers(self) -> list[int]:
        """The number of each page."""
        return [number for first, n in self.pages for number in range(first, first + n)]


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as runs: [first, how many]."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == sum(runs[-1]):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((number, 1))
    return runs
