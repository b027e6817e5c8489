"""What chat messages may not have."""

from __future__ import annotations

from typing import Any

import pytest

from actors.gateway.admission.chat_turns import turns_of
from actors.gateway.requests.refusals import Refusal


@pytest.mark.parametrize("role", [None, "robot", 3, ["user"], {"user": 1}])
def test_a_role_that_is_none_is_refused(role: Any) -> None:
    with pytest.raises(Refusal, match=r"messages\[0\]\.role: expected one of "):
        turns_of([{"role": role, "content": "hi"}])
