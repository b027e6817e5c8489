"""The cost of surviving: variants, the best round, and the processor time of a process."""

from __future__ import annotations

import os
import time

import pytest

from ops.bench.commands.survival import survival_cost
from ops.bench.commands.survival.survival_cost import VARIANTS, processor_s, summary


def turn(ms: float, **roles: float) -> dict:
    return {"ms_per_token": ms, "tokens_per_s": 100.0 / ms, "idle_ms_per_s": 1.0, "roles": roles}


def test_a_row_has_the_best_round_and_what_is_saved() -> None:
    rows = summary({"all of it": [turn(4.0, gateway=1.0), turn(9.0, gateway=3.0), turn(5.0, gateway=2.0)], "none": [turn(4.5)]})
    assert [(row["ms_per_token"], row["saved_percent"]) for row in rows] == [(4.0, 0.0), (4.5, -12.5)]
    assert (rows[0]["roles"], rows[0]["each_ms_per_token"]) == ({"gateway": 1.0}, [4.0, 9.0, 5.0])


def test_without_any_of_it_everything_is_off_once() -> None:
    assert VARIANTS["all of it"] == ()
    none = " ".join(VARIANTS["none of it"])
    for argument in ("journal_http_streams=false", "hold_connections=false", "--no-standby", "--no-vault", "spares=false"):
        assert none.count(argument) == 1


def test_processor_time_grows_with_work() -> None:
    before, end_s = processor_s(os.getpid()), time.process_time() + 0.1
    while time.process_time() < end_s:
        pass
    assert 0.1 <= processor_s(os.getpid()) - before <= 60.0


def test_a_process_that_was_replaced_spoils_the_measurement() -> None:
    before = {("gateway/0", 1): 1.0, ("gateway/1", 2): 1.0}
    assert survival_cost._difference({("gateway/0", 1): 2.0, ("gateway/1", 2): 4.0}, before) == {"gateway": 4.0}
    with pytest.raises(ValueError, match="expected the same all the time"):
        survival_cost._difference({("gateway/0", 3): 2.0, ("gateway/1", 2): 4.0}, before)
