"""The keys and tensor names of a GGUF file, read without its weights and without numpy.

The `gguf` package makes an array view of every token of the vocabulary, which takes seconds. This reader skips arrays and
takes milliseconds, so that a start that cannot succeed is refused at once. The layout is that of the GGUF specification,
versions 2 and 3: magic, version, number of tensors, number of keys, the keys, the descriptions of the tensors.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gpu_workers.model_store.gguf_types import FILE_TYPES, tensor_bytes

_MAGIC = b"GGUF"
_MISSING = object()
_FORMAT_BY_TYPE = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_ALIGNMENT, _USUAL_ALIGNMENT = "general.alignment", 32  # bytes; where the weights begin, and each tensor among them


class GgufError(ValueError):
    """The file is not a GGUF file, is damaged, or holds a model that is not supported."""


@dataclass(frozen=True)
class GgufArchitecture:
    """What a GGUF file of one architecture means in Hugging Face's words."""

    class_name: str  # of `architectures` in config.json; the model type is the name of the architecture
    rotates_pairs: bool = False  # rows of queries and keys are rotated in pairs of neighbours, not of halves
    may_have_biases: bool = False  # attention has biases where the file has them


ARCHITECTURES: Mapping[str, GgufArchitecture] = {
    "llama": GgufArchitecture("LlamaForCausalLM", rotates_pairs=True, may_have_biases=True),  # Mistral and SmolLM2 files too
    "qwen2": GgufArchitecture("Qwen2ForCausalLM"),
    "qwen3": GgufArchitecture("Qwen3ForCausalLM"),
}


class GgufKeys(Protocol):
    """The keys of a GGUF file, from which the configuration of a model is made."""

    @property
    def architecture(self) -> str:
        """One of ARCHITECTURES."""
        ...

    @property
    def tensor_names(self) -> frozenset[str]:
        """The file's own names of its tensors."""
        ...

    def key(self, name: str, default: Any = ...) -> Any:
        """The value of a key. Raises GgufError when it is missing and no default is given."""
        ...

    def model_key(self, name: str, default: Any = ...) -> Any:
        """The value of a key in the section of the architecture; errors as for `key`."""
        ...

    def array_length(self, name: str) -> int:
        """The number of elements of an array. Raises GgufError when it is missing."""
        ...

    def rope_factors(self) -> Any | None:
        """Divisors of the rotary frequencies, [head_dim / 2] float32; None where the file has none or they were not read."""
        ...


class GgufHeader(GgufKeys):
    """The header of a file. Of arrays only the lengths are kept. Weights and rotary factors are not read."""

    def __init__(self, path: Path) -> None:
        """Read the header of the file at `path`.

        Raises: GgufError when it is no GGUF file, ends before its last weight, or holds an architecture that is not supported.
        """
        self._name, self._needed_bytes = path.name, 0
        self._values: dict[str, Any] = {}
        self._lengths: dict[str, int] = {}
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                self._tensor_names = self._read(_Cursor(content))
                n_bytes = len(content)
        except (OSError, ValueError, OverflowError, struct.error) as error:
            raise GgufError(f"{path}: expected a GGUF file: {error}") from error
        self._architecture = check_architecture(str(self.key("general.architecture")))
        if n_bytes < self._needed_bytes:
            raise GgufError(f"{path}: expected at least {self._needed_bytes} bytes, as its header says, got {n_bytes}")

    @property
    def architecture(self) -> str:
        """The model's architecture: one of ARCHITECTURES."""
        return self._architecture

    @property
    def tensor_names(self) -> frozenset[str]:
        """The file's own names of its tensors."""
        return self._tensor_names

    @property
    def file_type(self) -> str:
        """What most of the weights are, such as "Q4_1"; "" where unknown."""
        return FILE_TYPES.get(self.key("general.file_type", -1), "")

    def key(self, name: str, default: Any = _MISSING) -> Any:
        """The value of a key that is no array; the default where it is missing.

        Raises: GgufError when it is missing and there is no default."""
        value = self._values.get(name, default)
        if value is _MISSING:
            raise GgufError(f"{name}: expected this key in {self._name}, got none")
        return value

    def model_key(self, name: str, default: Any = _MISSING) -> Any:
        """The value of a key in the section of the architecture; default and errors as for `key`."""
        return self.key(f"{self._architecture}.{name}", default)

    def array_length(self, name: str) -> int:
        """The number of elements of an array. Raises: GgufError when it is missing."""
        if name not in self._lengths:
            raise GgufError(f"{name}: expected this key in {self._name}, got none")
        return self._lengths[name]

    def rope_factors(self) -> None:
        """None: the factors are stored as a tensor, which is not read here."""

    def _read(self, cursor: _Cursor) -> frozenset[str]:
        """Fill in keys, lengths and the size that the file must have; returns the names of the tensors."""
        n_tensors, n_keys = cursor.begin()
        for _ in range(n_keys):
            name, kind = cursor.text(), cursor.number("I")
            if kind == _ARRAY:
                self._lengths[name] = cursor.skip_array()
            else:
                self._values[name] = cursor.text() if kind == _STRING else cursor.number(_format(kind))
        end_by_name = dict(cursor.tensor() for _ in range(n_tensors))
        alignment = int(self._values.get(_ALIGNMENT, _USUAL_ALIGNMENT))
        self._needed_bytes = -(-cursor.at // alignment) * alignment + max(end_by_name.values(), default=0)
        return frozenset(end_by_name)


def check_architecture(name: str) -> str:
    """`name` itself. Raises GgufError when it is none of ARCHITECTURES."""
    if name not in ARCHITECTURES:
        raise GgufError(f"general.architecture: expected one of {', '.join(ARCHITECTURES)}, got {name!r}")
    return name


def _format(kind: int) -> str:
    if kind not in _FORMAT_BY_TYPE:
        raise ValueError(f"value type: expected one of the GGUF format, got {kind}")
    return _FORMAT_BY_TYPE[kind]


class _Cursor:
    """Reads one value after another. Raises struct.error at the end of the content."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content, self._at, self._order = content, 0, "<"

    def begin(self) -> tuple[int, int]:
        """Magic and version; returns the numbers of tensors and of keys."""
        if self._content[:4] != _MAGIC:
            raise ValueError(f"it begins with {self._content[:4]!r} instead of {_MAGIC!r}")
        self._at = 4
        version = self.number("I")
        if version & 0xFFFF == 0:  # the file is big-endian
            self._order, self._at = ">", 4
            version = self.number("I")
        if version not in (2, 3):
            raise ValueError(f"expected version 2 or 3, got {version}")
        return self.number("Q"), self.number("Q")

    def number(self, kind: str) -> Any:
        """A number of one of struct's formats."""
        (value,) = struct.unpack_from(self._order + kind, self._content, self._at)
        self._at += struct.calcsize(self._order + kind)
        return value

    def text(self) -> str:
        """A string with its length before it."""
        n_bytes, start = self.number("Q"), self._at
        self._at += n_bytes
        return self._content[start : self._at].decode("utf-8", "replace")

    def skip_array(self) -> int:
        """Skip an array; returns its length."""
        kind, n = self.number("I"), self.number("Q")
        if kind == _STRING:
            content, at, unpack = self._content, self._at, struct.Struct(self._order + "Q").unpack_from
            for _ in range(n):
                at += 8 + unpack(content, at)[0]
            self._at = at
        else:
            self._at += n * struct.calcsize(self._order + _format(kind))
        return n

    def tensor(self) -> tuple[str, int]:
        """A tensor's description: its name, and where its bytes end, counted from where the weights begin."""
        name, n_dimensions = self.text(), self.number("I")
        n_values = math.prod([self.number("Q") for _ in range(n_dimensions)])
        kind = self.number("I")
        return name, self.number("Q") + tensor_bytes(kind, n_values)

    @property
    def at(self) -> int:
        """The bytes before the next value."""
        return self._at
