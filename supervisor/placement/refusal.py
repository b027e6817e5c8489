"""The error of a number of GPUs, ranks or replicas that is impossible, with the numbers that it offers instead. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from messages.errors import ConfigError

EXPECTED = "expected {offers} ({why}), got {got}"
EXPECTED_AT_MOST = "expected at most {offers} ({why}), got {got}"


class PlacementRefused(ConfigError):
    """A placement that is impossible.

    Args:
        key: the refused setting.
        offers: the values that the text names, ascending; at least one.
        why: the fact that makes the value impossible; it names none of the offers.
        got: the refused value.
        text: a format string with the fields {offers}, {why} and {got}.
    """

    def __init__(self, key: str, offers: Sequence[int], why: str, got: int, text: str = EXPECTED) -> None:
        super().__init__(f"{key}: {text.format(offers=_choice(offers), why=why, got=got)}")
        self.key, self.offers, self.why, self.got, self._text = key, tuple(offers), why, got, text

    def offering(self, offers: Sequence[int]) -> PlacementRefused:
        """The same refusal with some of the offers."""
        return PlacementRefused(self.key, offers, self.why, self.got, self._text)

    def with_flags(self, flags: str) -> ConfigError:
        """The same refusal, if only several values together work: as flags of the command line."""
        return ConfigError(
            f"{self.key}: expected a number that fits this host ({self.why}), got {self.got}; it works with {flags}"
        )


def _choice(numbers: Sequence[int]) -> str:
    """[1, 2, 3] as "1, 2 or 3"."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last
