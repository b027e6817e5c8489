"""A server on this machine that behaves like the Hugging Face hub: its API, redirects to where large files are, and Range.

Faults are set by the test: connections that break, refusals, wrong content, a server that ignores Range.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_SMALL_BYTES = 10_000  # the hub keeps larger files apart, by their SHA-256


def sha256_of(content: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def blob_id_of(content: bytes) -> str:
    """What git calls a small file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class FakeHub:
    """The models that there are, what was asked for, and what goes wrong. `ranges`: (SHA-256, Range or "") of large files."""

    models: dict[str, dict[str, bytes]]
    url: str = ""
    ranges: list[tuple[str, str]] = field(default_factory=list)
    breaks_after: list[int] = field(default_factory=list)  # bytes of the next answers; then the connection breaks
    refusals: list[int] = field(default_factory=list)  # HTTP statuses of the next answers with large files
    ignores_range: bool = False
    refuses_range: bool = False  # with status 503
    sends: dict[str, bytes] = field(default_factory=dict)  # by SHA-256: other content than that

    @property
    def url_of_large_files(self) -> str:
        """The same server under another name: the hub's client follows redirects of one host."""
        return self.url.replace("127.0.0.1", "localhost")

    @property
    def large(self) -> dict[str, bytes]:
        """The large files by SHA-256."""
        files = [content for files in self.models.values() for content in files.values() if len(content) > _SMALL_BYTES]
        return {sha256_of(content): content for content in files}

    def info(self, name: str) -> dict[str, Any]:
        """What the API says of a model."""
        siblings = []
        for file, content in self.models[name].items():
            about: dict[str, Any] = {"rfilename": file, "size": len(content), "blobId": blob_id_of(content)}
            if len(content) > _SMALL_BYTES:
                about["lfs"] = {"size": len(content), "sha256": sha256_of(content), "pointerSize": 134}
            siblings.append(about)
        return {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        path = self.path.partition("?")[0]
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/.+)?", path):
            return self._api(match[1])
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/.+", path):
            return self._tree(match[1])
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            return self._file(match[1], match[2], has_body=has_body)
        if match := re.fullmatch(r"/large/(\w+)", path):
            return self._large(match[1])
        return self._send(404, b"")

    def _api(self, name: str) -> None:
        if name not in self.hub.models:
            return self._send(404, b'{"error": "no"}', {"X-Error-Code": "RepoNotFound"})
        return self._send(200, json.dumps(self.hub.info(name)).encode(), {"Content-Type": "application/json"})

    def _tree(self, name: str) -> None:
        entries = []
        for file in self.hub.info(name)["siblings"]:
            entry = {"type": "file", "path": file["rfilename"], "size": file["size"], "oid": file["blobId"]}
            if lfs := file.get("lfs"):
                entry["lfs"] = {"oid": lfs["sha256"], "size": lfs["size"], "pointerSize": lfs["pointerSize"]}
            entries.append(entry)
        return self._send(200, json.dumps(entries).encode(), {"Content-Type": "application/json"})

    def _file(self, name: str, file: str, *, has_body: bool) -> None:
        content = self.hub.models.get(name, {}).get(file)
        if content is None:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        about = {"X-Repo-Commit": COMMIT}
        if len(content) > _SMALL_BYTES:
            digest = sha256_of(content)
            about |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
            return self._send(302, b"", {**about, "Location": f"{self.hub.url_of_large_files}/large/{digest}"})
        return self._send(200, content, {**about, "ETag": f'"{blob_id_of(content)}"'}, has_body=has_body)

    def _large(self, digest: str) -> None:
        hub, asked = self.hub, self.headers.get("Range", "")
        hub.ranges.append((digest, asked))
        if hub.refusals or (hub.refuses_range and asked):
            return self._send(hub.refusals.pop(0) if hub.refusals else 503, b"later")
        content = hub.sends.get(digest, hub.large[digest])
        begin = 0 if hub.ignores_range or not asked else int(asked.removeprefix("bytes=").partition("-")[0])
        headers = {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"} if begin else {}
        return self._send(
            206 if begin else 200, content[begin:], headers, n_most=hub.breaks_after.pop(0) if hub.breaks_after else None
        )

    def _send(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        *,
        has_body: bool = True,
        n_most: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body and self.command != "HEAD":
            self.wfile.write(body[:n_most])
        if n_most is not None:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that ends its connection is no fault of a test."""


@contextmanager
def fake_hub(models: dict[str, dict[str, bytes]]) -> Iterator[FakeHub]:
    """A hub with these models: files by name, by organisation/name."""
    hub = FakeHub(models)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
