"""Run by every Python process that has this directory in PYTHONPATH: it is of the next release if the file is there."""

from __future__ import annotations

import os

flag = os.environ.get("TARDIGRADE_TEST_NEXT_RELEASE", "")
if os.path.exists(flag):
    from tests.support.next_release.growth import grow

    grow()
    open(f"{flag}.{os.getpid()}", "w").close()  # a test looks who is of the next release
