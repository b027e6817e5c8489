"""A pattern that excludes quotation marks or backslashes keeps them out of answers; other patterns stay as they are."""

from __future__ import annotations

import re

import pytest

from actors.gateway.text.schemas.quoted_patterns import with_quoted_patterns
from tests.support.answers.allowed_values import is_allowed

VALUES = ["\\", "\\a", '"', "a", " ", ",", "aaa", '"a"', '"""', '"a\\"', "é"]


@pytest.mark.parametrize(
    "pattern",
    [
        '^[^"]$', '^[^"]+$', r"^[^\\]$", '^([^"a]|b)$', '^[^,"]$', r'^[^\n"]$', r'^[^"\\]{0,5}$', '[^"]{3}', '^"[^"]*"$',
        "^[^a]$", '^["a]$', r'^\["\]$', r'^"$', "^.$",
    ],
)  # fmt: skip
@pytest.mark.parametrize("bound", [{}, {"maxLength": 9}])
def test_answers_match_the_pattern(pattern: str, bound: dict[str, int]) -> None:
    schema = {"type": "string", "pattern": pattern, **bound}
    assert [value for value in VALUES if is_allowed(schema, value) != bool(re.search(pattern, value))] == []


@pytest.mark.parametrize("pattern", ["^[^a]$", '^["[^a]$', r'^\[^"]', '^[^[:alpha:]"]$', r"^[\\]$", "^[^"])
def test_other_patterns_stay_as_they_are(pattern: str) -> None:
    assert with_quoted_patterns({"pattern": pattern}) == {"pattern": pattern}
