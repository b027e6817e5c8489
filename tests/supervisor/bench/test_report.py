"""What `supervisor bench` prints of its figures."""

from __future__ import annotations

import io

from rich.console import Console

from supervisor.bench.http.completion_events import MeasuredAnswer
from supervisor.bench.load import Run
from supervisor.bench.report import figures, show
from supervisor.bench.samples import samples_of


def shown(answer: MeasuredAnswer) -> list[str]:
    answer.ended_s = 2.0
    text = io.StringIO()
    show("title", figures(samples_of(Run([answer], 0.0, 2.0))), Console(file=text, width=120))
    return text.getvalue().splitlines()


def test_a_run_without_an_answer_has_no_table() -> None:
    refused = MeasuredAnswer(scheduled_s=0.0, sent_s=0.0)
    refused.fail("http_404", "model: expected another")
    assert shown(refused) == ["title", "0 of 1 requests in 2.00 s: none was answered", "1 x http_404: model: expected another"]


def test_a_run_with_answers_has_one() -> None:
    answer = MeasuredAnswer(scheduled_s=0.0, sent_s=0.0)
    answer.handle(b'{"choices":[{"text":"x","finish_reason":"length"}]}', 1.0)
    said = shown(answer)
    assert "ttft, ms" in "".join(said)
    assert "1 of 1 requests in 2.00 s: 0.50 requests/s, " in "".join(said)
