"""The load tool's reader of HTTP and server-sent events: any cut of the bytes gives the same events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.bench.http.response import BrokenResponse, EventSplitter, HttpResponse

EVENTS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=40), max_size=8)


def wire_of(events: list[str], chunk_sizes: list[int]) -> bytes:
    """A chunked response whose chunks do not care where events end."""
    body = b"".join(b": ping\n\ndata: " + event.encode() + b"\n\n" for event in events)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks, at = [], 0
    sizes = iter(chunk_sizes)
    while at < len(body):
        size = next(sizes, len(body))
        chunks.append(body[at : at + size])
        at += size
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


@given(EVENTS, st.lists(st.integers(1, 30), max_size=20), st.lists(st.integers(1, 50), max_size=40))
def test_events_do_not_depend_on_how_bytes_arrive(events: list[str], chunk_sizes: list[int], cuts: list[int]) -> None:
    wire = wire_of(events, chunk_sizes) + b"next"
    response, splitter, got, at = HttpResponse(), EventSplitter(), [], 0
    for size in [*cuts, len(wire)]:
        piece = wire[at : at + size]
        at += size
        if piece and not response.is_complete:
            got += splitter.feed(response.feed(piece))
    assert [data.decode() for data in got] == events
    assert response.is_complete
    assert response.keeps_connection
    assert b"next".startswith(response.rest)


def test_a_body_with_a_length_ends_there() -> None:
    response = HttpResponse()
    assert response.feed(b"HTTP/1.1 429 Too Many\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhel") == b"hel"
    assert not response.is_complete
    assert response.feed(b"lo!") == b"lo"
    assert (response.status, response.is_complete, response.rest, response.keeps_connection) == (429, True, b"!", False)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    response = HttpResponse()
    assert response.feed(b"HTTP/1.0 200 OK\r\n\r\nall of it") == b"all of it"
    assert not response.is_complete
    response.end()
    assert response.is_complete


def test_a_cut_chunked_body_is_not_complete() -> None:
    response = HttpResponse()
    response.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
    response.end()
    assert not response.is_complete


def test_data_in_several_lines_is_joined() -> None:
    assert EventSplitter().feed(b"event: x\r\ndata: a\r\ndata:b\r\n\r\n: comment\r\n\r\n") == [b"a\nb"]


@pytest.mark.parametrize("wire", [b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"])
def test_what_is_not_http_is_refused(wire: bytes) -> None:
    with pytest.raises(BrokenResponse, match="expected"):
        HttpResponse().feed(wire)
