"""What a sequence has taken when it ends, phase by phase."""

from __future__ import annotations

from actors.scheduler.sequences.timeline import Timeline
from messages.generation.sequences import Work


def test_each_phase_is_the_time_between_two_moments() -> None:
    timeline = Timeline()
    timeline.arrived_s = 1.0
    assert timeline.work(2.0) == Work(queue_s=1.0), "it never left the queue"
    timeline.started_s = 3.0
    assert timeline.work(3.5) == Work(queue_s=2.0, prefill_s=0.5), "it had no token"
    timeline.first_token_s = 4.0
    timeline.verified(4, 3)
    timeline.verified(2, 0)
    assert timeline.work(10.0) == Work(queue_s=2.0, prefill_s=1.0, decode_s=6.0, n_drafted=6, n_accepted=3)
