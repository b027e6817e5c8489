"""Reads large JSON bodies without keeping the event loop: they are priced by their raw bytes, then decoded in pieces.

Decoding holds the interpreter's lock, and an object of Python takes 30 to 400 ns: 16 MiB of lists of one number would take
seconds. So a body above 64 KiB is read in these steps, one body at a time, with turns of the loop between them:

    count the values          in the raw bytes, outside of strings. Few: decode as usual, because long strings are fast.
    find the token ids        msgspec skips values without making objects of them. Only one field may hold many values.
    decode everything else    as usual
    decode the token ids      64 KiB at a time, into arrays; too many of them are refused before they are decoded
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np

from actors.gateway.bodies.body_errors import unreadable
from actors.gateway.bodies.fields.ranges import AnyInt
from actors.gateway.bodies.schema import read_body
from actors.gateway.requests.refusals import Refusal, invalid, json_text, prompt_too_long

SMALL_BYTES = 64 << 10  # a body of this size is decoded at once: 5 ms at most
MOST_VALUES = 32_768  # in a body, outside of a list of token ids: 20 ms at most
_PIECE_BYTES = 64 << 10
_COUNT_BYTES = 256 << 10

_ids_decoder = msgspec.json.Decoder(list[AnyInt])
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SPACE = re.compile(rb"[ \t\n\r]*")
B = TypeVar("B", bound=msgspec.Struct)


@dataclass(frozen=True)
class Structure:
    """About how many values and keys a JSON text has: the commas, opening brackets and colons outside of its strings."""

    n_values: int = 0
    n_keys: int = 0


class StructureCount:
    """Counts the structure of a JSON text that comes in pieces. Pure."""

    def __init__(self) -> None:
        self.n_values = self.n_keys = 0
        self._is_in_string = False

    def add(self, piece: bytes) -> None:
        """Count a piece. It must not end between a backslash and the character that this escapes, see `pieces_of`."""
        if b"\\" in piece:
            piece = piece.replace(rb"\\", b"xx").replace(rb"\"", b"xx")
        characters = np.frombuffer(piece, np.uint8)
        in_string = np.bitwise_xor.accumulate(characters == ord('"')) ^ self._is_in_string
        self._is_in_string = bool(in_string[-1])
        outside = characters[~in_string]
        for character in b",[{":
            self.n_values += int(np.count_nonzero(outside == character))
        self.n_keys += int(np.count_nonzero(outside == ord(":")))


def pieces_of(raw: bytes | bytearray, piece_bytes: int = _COUNT_BYTES) -> Iterator[bytes]:
    """A JSON text in pieces. No piece ends after the first half of an escape."""
    start = 0
    while start < len(raw):
        piece = bytes(raw[start : start + piece_bytes])
        n_backslashes = len(piece) - len(piece.rstrip(b"\\"))
        if n_backslashes % 2 and start + len(piece) < len(raw) and len(piece) > 1:
            piece = piece[:-1]
        start += len(piece)
        yield piece


class BodyReader:
    """Reads the bodies of one gateway. `max_length`: a prompt has fewer tokens. `max_batch`: prompts of one body."""

    def __init__(self, max_length: int, max_batch: int) -> None:
        self._max_length, self._max_batch = max_length, max_batch
        self._lock = asyncio.Lock()

    async def read(self, raw: bytes | bytearray, kind: type[B], ids_field: str = "", ignored: list[str] | None = None) -> B:
        """A request body as its struct. `ids_field`: the field that may hold many token ids, a list or a list of lists.
        `ignored`: as in `read_body`.

        If that field holds many, it comes as one array, int64 [n], or as a list of them; otherwise it is what its type says.

        Raises: Refusal naming the field, what was expected and what came.
        """
        if len(raw) <= SMALL_BYTES:
            return read_body(raw, kind, ignored)
        async with self._lock:
            structure = await _structure_of(raw)
            if structure.n_values <= MOST_VALUES:
                return read_body(raw, kind, ignored)
            if structure.n_keys > MOST_VALUES:
                raise _too_many(structure)
            return await self._read_with_ids(raw, kind, ids_field, ignored)

    async def _read_with_ids(self, raw: bytes | bytearray, kind: type[B], field: str, ignored: list[str] | None) -> B:
        try:
            fields = _fields_decoder.decode(raw)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            raise unreadable(error, raw) from None
        await asyncio.sleep(0)
        if not field:
            raise _too_many(await _structure_of(raw))
        ids = bytes(fields.get(field, b""))
        first = _after(ids, 1)
        is_nested = ids[first : first + 1] == b"["
        rest = msgspec.json.encode({**fields, field: msgspec.Raw(b"[[0]]" if is_nested else b"[0]")})
        structure = await _structure_of(rest)
        if structure.n_values > MOST_VALUES or not ids.startswith(b"["):
            raise _too_many(structure)
        body = read_body(rest, kind, ignored)
        value = await self._lists(ids, first, field) if is_nested else await self._ids(ids, 1, len(ids) - 1, field)
        return msgspec.structs.replace(body, **{field: value})

    async def _lists(self, raw: bytes, start: int, field: str) -> list[np.ndarray]:
        """The lists of token ids in a JSON list whose first item begins at `start`."""
        found: list[np.ndarray] = []
        while raw[start : start + 1] == b"[":
            if len(found) == self._max_batch:
                raise invalid(field, f"1 to {self._max_batch} prompts", raw.count(b"[") - 1)
            end = raw.find(b"]", start)
            found.append(await self._ids(raw, start + 1, end, f"{field}[{len(found)}]"))
            start = _after(raw, _after(raw, end + 1) + 1)  # after the comma, or the last bracket
        if start < len(raw):
            raise Refusal("invalid", f"{field}[{len(found)}]: expected a list of token ids, got something else", field=field)
        return found

    async def _ids(self, raw: bytes, start: int, end: int, path: str) -> np.ndarray:
        """The token ids in raw[start:end], the text between two brackets: int64 [n]."""
        n_ids = raw.count(b",", start, end) + 1
        if n_ids >= self._max_length:
            raise prompt_too_long(path.partition("[")[0], self._max_length, n_ids)
        parts: list[np.ndarray] = []
        while start < end:
            cut = raw.rfind(b",", start, start + _PIECE_BYTES) if end - start > _PIECE_BYTES else end
            piece = raw[start:cut] if cut >= start else raw[start : start + _PIECE_BYTES]
            try:
                parts.append(np.array(_ids_decoder.decode(b"[" + piece + b"]"), dtype=np.int64))
            except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
                shown = json_text(piece.decode("utf-8", "replace"))
                raise Refusal("invalid", f"{path}: expected token ids, got {shown}", field=path.partition("[")[0]) from None
            start = cut + 1 if cut >= start else end
            await asyncio.sleep(0)
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


async def _structure_of(raw: bytes | bytearray) -> Structure:
    count = StructureCount()
    for piece in pieces_of(raw):
        count.add(piece)
        await asyncio.sleep(0)
    return Structure(count.n_values, count.n_keys)


def _after(raw: bytes, start: int) -> int:
    """Where the next character after white space is."""
    found = _SPACE.match(raw, start)
    return found.end() if found is not None else start


def _too_many(structure: Structure) -> Refusal:
    got = f"{structure.n_values} and {structure.n_keys} keys"
    return Refusal("too_large", f"body: expected at most {MOST_VALUES} values beside a list of token ids, got about {got}")
