"""Reading an HTTP/1.1 response and the server-sent events in it, piece by piece as the bytes come. Pure and cheap.

A load generator must not be the bottleneck: one small object for each response, no header objects, no copies but slices.
"""

from __future__ import annotations


class BrokenResponse(Exception):
    """The bytes are no HTTP response."""


class HttpResponse:
    """One response. Feed it bytes; it hands out the body's bytes, freed of transfer coding."""

    def __init__(self) -> None:
        self.status = 0  # 0 until the head is complete
        self.is_complete = False
        self.keeps_connection = True
        self.rest = b""  # bytes after a complete response
        self._buffer = b""
        self._left = -1  # bytes left of the body, or of the present chunk; -1: until the connection ends
        self._is_chunked = False
        self._awaits_size = False

    def feed(self, data: bytes) -> bytes:
        """The body's bytes in `data`.

        Raises: BrokenResponse.
        """
        if self.status == 0:
            data = self._read_head(self._buffer + data)
            if self.status == 0:
                return b""
        if self._is_chunked:
            return self._read_chunks(data)
        if self._left < 0:
            return data
        body, self.rest = data[: self._left], data[self._left :]
        self._left -= len(body)
        self.is_complete = self._left == 0
        return body

    def end(self) -> None:
        """The connection has ended, which completes a response without a length."""
        if self.status and not self._is_chunked and self._left < 0:
            self.is_complete = True

    def _read_head(self, data: bytes) -> bytes:
        at = data.find(b"\r\n\r\n")
        if at < 0:
            self._buffer = data
            if len(data) > 65_536:
                raise BrokenResponse("head: expected its end within 64 KiB")
            return b""
        first, _, fields = data[:at].partition(b"\r\n")
        words = first.split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise BrokenResponse(f"head: expected HTTP/1.x and a status, got {first[:60]!r}")
        lowered = b"\r\n" + fields.lower() + b"\r\n"
        self._is_chunked = b"\r\ntransfer-encoding: chunked" in lowered
        self._awaits_size = self._is_chunked
        self.keeps_connection = b"\r\nconnection: close" not in lowered
        length_at = lowered.find(b"\r\ncontent-length:")
        if length_at >= 0 and not self._is_chunked:
            self._left = int(lowered[length_at + 17 :].split(b"\r\n", 1)[0])
            self.is_complete = self._left == 0
        elif not self._is_chunked:
            self.keeps_connection = False
        self.status = int(words[1])
        self._buffer = b""
        return data[at + 4 :]

    def _read_chunks(self, data: bytes) -> bytes:
        """Chunked coding: a size in hexadecimal, that many bytes, an empty line; size 0 is the end."""
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        pieces = []
        at = 0
        while at < len(data) and not self.is_complete:
            if self._awaits_size:
                line_end = data.find(b"\r\n", at)
                if line_end < 0:
                    break
                try:
                    size = int(data[at:line_end].split(b";", 1)[0], 16)
                except ValueError:
                    raise BrokenResponse(f"chunk: expected a size, got {data[at : at + 20]!r}") from None
                if size == 0:
                    if len(data) < line_end + 4:
                        break
                    self.is_complete, at = True, line_end + 4
                    break
                at, self._left, self._awaits_size = line_end + 2, size, False
            piece = data[at : at + self._left]
            pieces.append(piece)
            at += len(piece)
            self._left -= len(piece)
            if self._left == 0:
                if len(data) < at + 2:
                    break
                at += 2
                self._awaits_size = True
        if self.is_complete:
            self.rest = data[at:]
        else:
            self._buffer = data[at:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class EventSplitter:
    """The `data` of server-sent events in a stream of bytes. Comments and other fields are passed over."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, body: bytes) -> list[bytes]:
        """The data of every event that is complete now."""
        buffer = self._buffer + body if self._buffer else body
        if b"\r" in buffer:
            buffer = buffer.replace(b"\r\n", b"\n")
        *events, self._buffer = buffer.split(b"\n\n")
        return [data for event in events if (data := _data_of(event))]


def _data_of(event: bytes) -> bytes:
    if event.startswith(b"data: ") and b"\ndata" not in event:  # nearly all
        return event[6:].partition(b"\n")[0]
    lines = (line for line in event.split(b"\n") if line.startswith(b"data:"))
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines)
