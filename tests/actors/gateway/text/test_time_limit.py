"""A chat template that takes too long is ended; one that is quick, and everything after it, is left alone."""

from __future__ import annotations

import signal
import threading

import pytest

from actors.gateway.text import chat_template
from actors.gateway.text.chat_template import ChatTemplate, TemplateError
from actors.gateway.text.time_limit import processor_limit

TURNS = [{"role": "user", "content": "hi"}]
ENDLESS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
)


def test_a_template_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "LIMIT_S", 0.05)
    with pytest.raises(TemplateError, match=r"more than 0.05 s of a processor"):
        ChatTemplate(ENDLESS, {}).render(TURNS)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert ChatTemplate("{{ messages[0].content }}", {}).render(TURNS) == "hi"


def test_a_body_that_ends_in_time_is_not_disturbed_afterwards() -> None:
    for _ in range(1000):
        with processor_limit(1e-5):
            pass
    assert sum(range(1_000_000))
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_in_another_thread_nothing_is_limited() -> None:
    done: list[int] = []

    def work() -> None:
        with processor_limit(1e-6):
            done.append(sum(range(100_000)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
