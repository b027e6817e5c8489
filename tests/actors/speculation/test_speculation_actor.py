"""Speculation's actor, driven by hand: drafts for known sequences only, bounds, bad mail, full links and dead schedulers."""

from __future__ import annotations

from typing import Any

import pytest

from actors.speculation.settings import SpeculationSettings
from actors.speculation.speculation_actor import SpeculationActor
from messages.drafts import Drafts, Tails
from messages.lifecycle.lifecycle import Peer
from messages.transport.mailbox import Delivery
from messages.wire.arrays import Int32s, Int64s, int32s, int64s
from messages.wire.codec import Codec
from messages.wire.message import Message
from tests.support.memory_cluster import spawn_spec_of
from tests.support.recording_mailbox import RecordingMailbox

LOOP = [5, 6, 7, 5, 6, 7]
Row = tuple[int, int, list[int] | None]  # (sequence, start, tokens; None: it has ended)


def tails_of(*rows: Row, drafted: int = 0, accepted: int = 0) -> Tails:
    return Tails(
        sequences=int64s([number for number, _, _ in rows]),
        starts=int32s([start for _, start, _ in rows]),
        counts=int32s([-1 if tokens is None else len(tokens) for _, _, tokens in rows]),
        ids=int32s([token for _, _, tokens in rows for token in tokens or []]),
        drafted=int32s([drafted] * len(rows)),
        accepted=int32s([accepted] * len(rows)),
    )


class Bench:
    """Speculation and the schedulers that it knows."""

    def __init__(self, **settings: Any) -> None:
        make: Any = RecordingMailbox
        self.actor = SpeculationActor(spawn_spec_of("speculation/0", SpeculationSettings(**settings)), make)
        self.mailbox: Any = self.actor.mailbox
        for name in ("scheduler/0", "scheduler/1"):
            self.actor.child.peers[name] = Peer(name=name, incarnation=1, endpoint="memory://")

    def report(self, *rows: Row, sender: str = "scheduler/0", **results: int) -> dict[int, tuple[int, list[int]]]:
        """One report; what is answered: sequence -> (start, draft)."""
        message = tails_of(*rows, **results)
        self.mailbox.sent.clear()
        self.actor.on_tails(Delivery(sender=sender, sender_incarnation=1, message=message), message)
        if not self.mailbox.sent:
            return {}
        ((recipient, drafts),) = self.mailbox.sent
        assert recipient == sender
        assert isinstance(drafts, Drafts)
        answer, offset, ids = {}, 0, drafts.ids.tolist()
        for number, start, count in zip(drafts.sequences.tolist(), drafts.starts.tolist(), drafts.counts.tolist(), strict=True):
            answer[number] = (start, ids[offset : offset + count])
            offset += count
        return answer

    @property
    def n_sequences(self) -> int:
        return int(self.actor.statistics()["sequences"])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_repeating_sequence_gets_a_draft_for_the_positions_after_its_tokens(bench: Bench) -> None:
    answer = bench.report((1, 0, LOOP), (2, 0, [1, 2, 3, 4]))
    assert set(answer) == {1}
    start, draft = answer[1]
    assert start == len(LOOP)
    assert draft == [*LOOP, *LOOP][: len(draft)]
    start, draft = bench.report((1, 6, [5, 6]), drafted=2, accepted=2)[1]
    assert (start, draft[:2]) == (8, [7, 5])


def test_drafts_are_no_longer_than_the_settings_allow() -> None:
    bench = Bench(max_draft=3)
    (_, draft) = bench.report((1, 0, LOOP))[1]
    assert draft == [5, 6, 7]


def test_a_sequence_whose_beginning_is_not_known_gets_no_drafts(bench: Bench) -> None:
    assert bench.report((1, 100, LOOP)) == {}
    assert bench.n_sequences == 0


def test_after_a_lost_report_a_sequence_gets_no_drafts_until_it_begins_again(bench: Bench) -> None:
    bench.report((1, 0, LOOP))
    assert bench.report((1, 8, LOOP)) == {}  # positions 6 and 7 were lost
    assert bench.report((1, 14, LOOP)) == {}
    assert bench.report((1, 0, LOOP))[1][0] == 6


def test_an_ended_sequence_is_forgotten(bench: Bench) -> None:
    bench.report((1, 0, LOOP), (2, 0, LOOP))
    bench.report((1, 0, None))
    assert bench.n_sequences == 1
    assert bench.report((1, 6, LOOP)) == {}
    assert bench.report((3, 0, None)) == {}  # never heard of


def test_the_oldest_sequence_is_forgotten_when_there_are_too_many() -> None:
    bench = Bench(max_sequences=2)
    bench.report((1, 0, LOOP), (2, 0, LOOP), (3, 0, LOOP))
    assert bench.n_sequences == 2
    assert set(bench.report((1, 6, LOOP), (2, 6, LOOP), (3, 6, LOOP))) == {2, 3}


def test_sequences_of_two_schedulers_with_the_same_number_are_two(bench: Bench) -> None:
    bench.report((1, 0, LOOP))
    assert bench.report((1, 0, [8, 9, 8, 9, 8]), sender="scheduler/1")[1][1][:2] == [9, 8]
    assert bench.report((1, 6, [5]))[1][1][:2] == [6, 7]


def test_a_dead_scheduler_takes_its_sequences_along(bench: Bench) -> None:
    bench.report((1, 0, LOOP))
    bench.report((1, 0, LOOP), sender="scheduler/1")
    bench.actor.peer_down("gateway/0", 1)
    assert bench.n_sequences == 2
    bench.actor.peer_down("scheduler/0", 1)
    assert bench.n_sequences == 1
    assert bench.report((1, 6, LOOP), sender="scheduler/1")


def test_a_scheduler_that_is_gone_and_a_full_link_get_nothing(bench: Bench) -> None:
    bench.mailbox.is_full = True
    assert bench.report((1, 0, LOOP)) == {}
    bench.mailbox.is_full = False
    assert bench.actor.progress() == (0, 0.0)
    del bench.actor.child.peers["scheduler/0"]
    assert bench.report((1, 6, LOOP)) == {}
    assert bench.actor.progress() == (0, 0.0)


def test_a_sequence_whose_repeats_predict_nothing_gets_no_drafts_until_they_do(bench: Bench) -> None:
    bench.report((1, 0, LOOP))
    known, misleading = len(LOOP), []
    for new in range(100, 160):  # 5, 6 comes again and again, each time before another token
        answer = bench.report((1, known, [5, 6]))
        known += 2
        misleading.append(bool(answer))
        bench.report((1, known, [new]))
        known += 1
    assert misleading[0]
    assert not any(misleading[-40:])
    bench.report((1, known, LOOP * 8))
    assert bench.report((1, known + 8 * len(LOOP), LOOP))[1][1][:3] == [5, 6, 7]


def test_a_prompt_that_repeats_nothing_says_nothing_about_its_answer(bench: Bench) -> None:
    prompt = [token for new in range(100, 140) for token in (5, 6, new)]
    assert bench.report((1, 0, [*prompt, 5, 6]))[1][1][0] == 139


def test_a_report_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="accepted: expected 0 or more"):
        tails_of((1, 0, LOOP), drafted=2, accepted=-1)


class LaterTails(Message, frozen=True, tag="Tails"):
    """`Tails` as the next release may send them: without what was verified."""

    sequences: Int64s
    starts: Int32s
    counts: Int32s
    ids: Int32s
    accepted: Int32s


def test_a_report_of_the_next_release_may_leave_out_what_was_verified() -> None:
    tails = tails_of((1, 0, LOOP), drafted=2, accepted=2)
    later = LaterTails(**{name: getattr(tails, name) for name in LaterTails.__struct_fields__})
    read = Codec([Tails]).decode(*Codec([LaterTails]).encode(later))
    assert (read.ids.tolist(), read.accepted.tolist()) == (LOOP, [2])
