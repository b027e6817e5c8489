"""The directory's actor keeps answers for gateways, finds them and forgets them."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from actors.cache_directory.answers.answers_file import write_answers
from actors.cache_directory.directory_actor import DirectoryActor
from actors.cache_directory.settings import DirectorySettings
from messages.caches import equal, similar
from messages.errors import MailboxFull
from messages.transport.mailbox import Delivery
from messages.wire.arrays import float32s, int32s
from tests.support.memory_cluster import spawn_spec_of
from tests.support.recording_mailbox import RecordingMailbox

CIRCLE = b"0123456789abcdef"
GATEWAY = "gateway/0"


class Bench:
    """A directory, its two clocks, and what it has sent."""

    def __init__(self, **settings: Any) -> None:
        self.now_s = 100.0
        make: Any = RecordingMailbox
        spawn_spec = spawn_spec_of("cache_directory/0", DirectorySettings(**settings))
        self.actor = DirectoryActor(spawn_spec, make, lambda: self.now_s, lambda: self.now_s)
        self.post: Any = self.actor.mailbox

    def hears(self, message: Any) -> Any:
        """Hand a message over; returns the last one that was sent."""
        delivery = Delivery(sender=GATEWAY, sender_incarnation=1, message=message)
        self.actor.handlers()[type(message)](delivery, message)
        return self.post.sent[-1][1] if self.post.sent else None

    def keeps(self, *vector: float, scope: bytes = b"") -> None:
        """A gateway has an answer."""
        self.hears(
            similar.KeepSimilar(
                circle=CIRCLE,
                vector=float32s(vector),
                ids=int32s([7, 8]),
                reason="length",
                scope=scope,
                start=int32s([1, 2]),
                began_s=self.now_s,
            )
        )

    def finds(self, *vector: float, least: float = 0.9) -> similar.SimilarFound:
        """The answer to a question."""
        return self.hears(similar.FindSimilar(query=3, circle=CIRCLE, vector=float32s(vector), least=least))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = Bench(keeps_answers=True, keeps_similar=True, answers_file=str(tmp_path / "answers"))
    found.now_s += 1.0
    return found


def test_an_answer_is_found_by_a_similar_question(bench: Bench) -> None:
    bench.keeps(1.0, 0.0)
    found = bench.finds(2.0, 0.2)
    assert (found.has_answer, found.ids.tolist(), found.reason) == (True, [7, 8], "length")
    assert found.similarity == pytest.approx(0.995, abs=1e-3)
    assert bench.actor.statistics()["similar_hits"] == 1


def test_a_question_without_an_answer_is_answered_too(bench: Bench) -> None:
    bench.keeps(1.0, 0.0)
    assert not bench.finds(0.0, 1.0).has_answer
    assert not bench.finds(1.0, 0.0, 0.0).has_answer


def test_a_reset_is_obeyed_and_answered(bench: Bench) -> None:
    bench.keeps(1.0, 0.0, scope=b"me")
    bench.now_s += 1.0
    wanted = equal.ForgetAnswers(call=5, scope=b"you")
    assert bench.hears(wanted) == equal.AnswersForgotten(call=5, equal=0, similar=0)
    assert bench.hears(equal.ForgetAnswers(call=6)) == equal.AnswersForgotten(call=6, equal=0, similar=1)
    assert not bench.finds(1.0, 0.0).has_answer


def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    bench = Bench()
    bench.now_s += 1.0
    bench.keeps(1.0, 0.0)
    assert not bench.finds(1.0, 0.0).has_answer
    assert "similar_hits" not in bench.actor.statistics()


def test_what_was_kept_before_is_removed_where_nothing_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "answers"
    write_answers(file, [])
    asyncio.run(Bench(answers_file=str(file)).actor.start())
    assert [*tmp_path.iterdir()] == []


def test_figures_can_be_scraped(bench: Bench) -> None:
    bench.keeps(1.0, 0.0)
    bench.finds(1.0, 0.0)
    assert bench.actor.registry.get_sample_value("tardigrade_similar_lookups_total", {"result": "hit"}) == 1
    assert bench.actor.registry.get_sample_value("tardigrade_similar_answers") == 1


def test_a_reset_is_answered_once_every_other_gateway_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.actor._sharing, "_untold", {GATEWAY: deque(), "gateway/1": deque()})
    bench.now_s += 1.0
    wanted = equal.ForgetAnswers(call=7)
    honest = bench.post.send
    refuses = [True]

    def send(name: str, message: Any, trace: bytes = b"") -> None:
        if name == "gateway/1" and refuses.pop():
            refuses.append(False)
            raise MailboxFull(name)
        honest(name, message, trace)

    monkeypatch.setattr(bench.post, "send", send)
    assert bench.hears(wanted) is None, "it will be asked again"
    refuses[:] = [False]
    assert bench.hears(wanted) == equal.AnswersForgotten(call=7, equal=0, similar=0)
    assert ("gateway/1", wanted) in [sent[:2] for sent in bench.post.sent]
