"""Prints the ten slowest tests of several runs of pytest, and how long the runs took: they may run beside each other.

python -m ops.slowest_tests REPORT...    the files that --junitxml has written
"""

from __future__ import annotations

import sys
from datetime import datetime
from xml.etree import ElementTree

_SHOWN = 10


def slowest(reports: list[str]) -> list[str]:
    """The lines to print."""
    suites = [suite for report in reports for suite in ElementTree.parse(report).iter("testsuite")]
    times = [
        (float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}")
        for s in suites
        for case in s.iter("testcase")
    ]
    all_s = max(_begin_s(suite) + float(suite.get("time", 0)) for suite in suites) - min(map(_begin_s, suites))
    head = f"{len(times)} tests in {all_s / 60:.1f} minutes; the slowest, in seconds with their fixtures:"
    return [head, *(f"{took_s:8.2f}  {name}" for took_s, name in sorted(times, reverse=True)[:_SHOWN])]


def _begin_s(suite: ElementTree.Element) -> float:
    return datetime.fromisoformat(suite.get("timestamp", "")).timestamp()


if __name__ == "__main__":
    print("\n".join(slowest(sys.argv[1:])))
