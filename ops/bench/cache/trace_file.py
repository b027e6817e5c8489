"""Traces as files, and with the hashes that the page ledger asks for."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec

from actors.pages.chain_root import ROOT
from actors.pages.page_hash import page_hash
from actors.pages.traced_request import TracedRequest
from messages.steps import PAGE_TOKENS


class HashedRequest(msgspec.Struct, frozen=True):
    """A request with what the page ledger asks for: (hash, parent's hash, tokens) of each page."""

    at_ms: int
    took_ms: int
    prompt_pages: int
    contents: list[tuple[int, int, bytes]]


def hashed(trace: list[TracedRequest]) -> list[HashedRequest]:
    """The trace with the chained hashes of its pages, whose tokens are made up from their numbers."""
    known: dict[tuple[int, int], tuple[int, int, bytes]] = {}  # content by the parent's hash and the page's number
    found = []
    for request in trace:
        contents, parent = [], ROOT
        for number in request.numbers:
            content = known.get((parent, number))
            if content is None:
                tokens = number.to_bytes(PAGE_TOKENS * 4, "little")
                content = known[parent, number] = page_hash(parent, tokens), parent, tokens
            contents.append(content)
            parent = content[0]
        found.append(HashedRequest(request.at_ms, request.took_ms, request.prompt_pages, contents))
    return found


def read_trace(path: Path) -> list[TracedRequest]:
    """The requests of a file, which may be compressed (.gz), by the time of their beginning.

    Raises: ValueError naming the line and the field that is wrong; OSError when the file cannot be read.
    """
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    trace = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            request = msgspec.json.decode(line, type=TracedRequest)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        if request.prompt_pages > (n_pages := sum(n for _, n in request.pages)):
            raise ValueError(f"{path}, line {number}: prompt_pages: expected at most {n_pages}, got {request.prompt_pages}")
        trace.append(request)
    if not trace:
        raise ValueError(f"{path}: expected at least one request, got none")
    return sorted(trace, key=lambda request: request.at_ms)


def write_trace(path: Path, trace: list[TracedRequest]) -> None:
    """Write a file that `read_trace` reads; compressed if its name ends with .gz."""
    data = b"".join(msgspec.json.encode(request) + b"\n" for request in trace)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
