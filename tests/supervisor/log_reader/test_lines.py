"""Which lines a reader of the log gets."""

from __future__ import annotations

import json

from supervisor.log_reader.lines import LogLine, Selection, actors_in, parsed, selected, story, with_own_ids
from supervisor.log_reader.text import LogText


def raw(event: str, at_s: float = 0.0, actor: str = "gateway/0", level: str = "info", **fields: object) -> bytes:
    stamp = f"2026-11-28T11:00:{at_s:09.6f}Z"
    return json.dumps(
        {**fields, "event": event, "actor": actor, "level": level, "timestamp": stamp}, separators=(",", ":")
    ).encode()


def events(lines: list[bytes], **wanted: object) -> list[str]:
    return [line.event for line in selected(lines, Selection(**wanted))]  # pyright: ignore[reportArgumentType]


def line_of(text: bytes) -> LogLine:
    line = parsed(text)
    assert line is not None
    return line


def test_an_actor_a_role_and_the_lines_of_others_about_it() -> None:
    lines = [
        raw("a", actor="worker/0.1"),
        raw("b", actor="worker/0.10"),
        raw("died", actor="supervisor/0", child="worker/0.1"),
        raw("c", actor="scheduler/0"),
    ]
    assert events(lines, actor="worker/0.1") == ["a", "died"]
    assert events(lines, actor="worker") == ["a", "b", "died"]
    assert actors_in([*lines, b"torn"]) == {"worker/0.1", "worker/0.10", "supervisor/0", "scheduler/0"}


def test_level_and_time() -> None:
    lines = [raw("old", 1.0, level="error"), raw("info", 5.0), raw("warned", 6.0, level="warning")]
    since_s = line_of(raw("x", 2.0)).at_s
    assert events(lines, since_s=since_s) == ["info", "warned"]
    assert events(lines, level="warning") == ["old", "warned"]


def test_a_request_by_each_of_its_ids_alone_or_among_others_but_not_by_a_part_of_one() -> None:
    lines = [
        raw("one", request="r1", x_request_id="mine", trace="ab"),
        raw("many", requests=["r0", "r1"]),
        raw("other", request="r11"),
    ]
    assert events(lines, request="r1") == ["one", "many"]
    for known in ("mine", "ab"):
        wanted = with_own_ids(lines, Selection(request=known))
        assert [line.event for line in selected(lines, wanted)] == ["one", "many"]


def test_a_trace_has_the_lines_of_all_its_requests() -> None:
    lines = [
        raw("first", request="r1", trace="ab"),
        raw("second", request="r2", trace="ab"),
        raw("requests are computed again", actor="scheduler/0", requests=["r2", "r3"]),
        raw("plan refused", actor="worker/0.0", requests=["r1"]),
        raw("other", actor="scheduler/0", requests=["r3"]),
    ]
    wanted = with_own_ids(lines, Selection(request="ab"))
    assert wanted.own_ids == ("r1", "r2")
    assert [line.event for line in selected(lines, wanted)] == [
        "first",
        "second",
        "requests are computed again",
        "plan refused",
    ]


def test_torn_lines_are_passed_over() -> None:
    whole = raw("whole")
    assert events([whole[:20], b"{}", b"[]", whole[:-1] + b"}}", b'{"timestamp": 3}', whole]) == ["whole"]


def test_a_story_has_the_phases_of_its_request_and_the_deaths_meanwhile() -> None:
    ended = {"request": "r1", "ending": "stop", "queue_ms": 1.5, "first_token_ms": 500.0, "total_ms": 8000.0, "tenant": "t"}
    lines = [
        raw("child died", 1.0, actor="supervisor/0", child="worker/0.0"),
        raw("child died", 14.0, actor="supervisor/0", child="worker/0.0"),
        raw("requests are submitted again", 14.1, requests=["r1", "r2"]),
        raw("request", 18.0, **ended),
        raw("request", 19.0, **{**ended, "request": "r2"}),
        raw("child died", 29.0, actor="supervisor/0", child="worker/0.0"),
    ]
    told = story(lines, Selection(request="r1"))
    assert [(round(line.at_s % 60, 1), line.event) for line in told] == [
        (10.0, "accepted"),
        (10.5, "first token"),
        (14.0, "child died"),
        (14.1, "requests are submitted again"),
        (18.0, "ended"),
    ]
    assert story(lines, Selection(request="nobody")) == []
    assert LogText(False, "r1").lines(told[3])[1].endswith('requests="this one and 1 more"')


def test_text_names_days_incarnations_and_tracebacks() -> None:
    text = LogText(False)
    first = text.lines(line_of(raw("child died", child="worker/0.0", incarnation=3, how="killed by SIGKILL", exception="a\nb")))
    assert first == [
        "2026-11-28 (UTC)",
        '11:00:00.000 info    gateway/0           child died  child=worker/0.0.3 how="killed by SIGKILL"',
        "    a",
        "    b",
    ]
    assert text.lines(line_of(raw("x", 1.0, incarnation=2))) == ["11:00:01.000 info    gateway/0.2         x"]
    assert "\033[" in LogText(True).lines(line_of(raw("x")))[1]
