"""Who watches a server while it is measured: a scrape of /metrics each second, as Prometheus makes it, and one open page."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_SCRAPE_S = 1.0
_ANSWER_S = 60.0
_PAGE = {"Accept": "text/html"}

_Watch = Callable[[http.client.HTTPConnection, "WatcherCounts", threading.Event, threading.Event], None]


class NotWatched(Exception):
    """A watcher got no answer, or another one than it needs; a measurement would say nothing."""


@dataclass
class WatcherCounts:
    """What the watchers of a server have got so far."""

    n_scrapes: int = 0
    n_page_events: int = 0
    errors: list[str] = field(default_factory=list)


@contextmanager
def watching(url: str) -> Iterator[WatcherCounts]:
    """Scrape the server at `url` and keep its page open meanwhile. Both have had an answer before the block begins.

    Raises: NotWatched.
    """
    watched, is_over = WatcherCounts(), threading.Event()
    threads, firsts = [], []
    for watch in (_scrape, _read_page):
        first = threading.Event()
        thread = threading.Thread(target=_guarded, args=(watch, url, watched, first, is_over), daemon=True)
        thread.start()
        threads.append(thread)
        firsts.append(first)
    try:
        if not all(first.wait(_ANSWER_S) for first in firsts):
            raise NotWatched(f"{url}: expected metrics and events of the page within {_ANSWER_S:g} s")
        _check(url, watched)
        yield watched
    finally:
        is_over.set()
        for thread in threads:
            thread.join(_ANSWER_S)
    _check(url, watched)


def _check(url: str, watched: WatcherCounts) -> None:
    if watched.errors:
        raise NotWatched(f"{url}: {'; '.join(watched.errors)}")


def _guarded(watch: _Watch, url: str, watched: WatcherCounts, first: threading.Event, is_over: threading.Event) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_ANSWER_S)
    try:
        watch(connection, watched, first, is_over)
    except (OSError, http.client.HTTPException) as error:
        watched.errors.append(f"{watch.__name__.strip('_')}: {error or type(error).__name__}")
    finally:
        connection.close()
        first.set()


def _scrape(
    connection: http.client.HTTPConnection, watched: WatcherCounts, first: threading.Event, is_over: threading.Event
) -> None:
    while not is_over.is_set():
        _opened(connection, "/metrics", {}).read()
        watched.n_scrapes += 1
        first.set()
        is_over.wait(_SCRAPE_S)


def _read_page(
    connection: http.client.HTTPConnection, watched: WatcherCounts, first: threading.Event, is_over: threading.Event
) -> None:
    _opened(connection, "/", _PAGE).read()
    events = _opened(connection, "/v1/live?stream=true", {})
    while not is_over.is_set() and (line := events.readline()):
        if line.startswith(b"data:"):
            watched.n_page_events += 1
            first.set()
    if not is_over.is_set():
        raise OSError("the stream of the page has ended")


def _opened(connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise OSError(f"GET {path}: HTTP {answer.status}")
    return answer
