"""HTTP/1.1 for clients that offer another protocol: `Upgrade: h2c` (Java's HttpClient, `curl --http2`) or `websocket`.

A server may ignore the offer (RFC 9110, 7.8). httptools stops reading at the end of such a head and takes the body for bytes
of the other protocol.
"""

from __future__ import annotations

from array import array

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HttpOnlyParser(HttpRequestParser):
    """A parser that reads each request as HTTP. A head with an offer is read twice: its callbacks come again without the header
    `Upgrade`, before those of its body. While `is_offered`, they are those of the first reading and must have no effect.

    `reader` has the callbacks, and what they have told it of the head.
    """

    def __init__(self, reader: HttpToolsProtocol) -> None:
        super().__init__(reader)
        self._reader = reader

    @property
    def is_offered(self) -> bool:
        """True from the end of a head that offers another protocol until it is read again."""
        return self.should_upgrade() and self.get_method() != b"CONNECT"

    def feed_data(self, data: bytes | bytearray | memoryview[int] | array[int]) -> None:
        """Raises: HttpParserError, and HttpParserUpgrade for the method CONNECT alone."""
        while True:
            try:
                super().feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                if not self.is_offered:
                    raise
                data = memoryview(data)[upgrade.args[0] :]  # a view: many requests may have come together
            super().feed_data(self._head_without_offer())

    def _head_without_offer(self) -> bytes:
        reader = self._reader
        lines = [b"%s %s HTTP/%s" % (self.get_method(), reader.url, self.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in reader.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])
