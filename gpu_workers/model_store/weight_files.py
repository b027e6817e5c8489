"""Which files of a model's folder hold its weights, and whether they are whole. Without torch, so that the supervisor can ask
before it starts anything."""

from __future__ import annotations

from pathlib import Path

import msgspec

from messages.lifecycle.used_weights import used_weights

_LENGTH_BYTES = 8  # of the header's own length, before it
_MOST_HEADER_BYTES = 100_000_000  # as the format has it
_POINTER_BEGINS = b"version "  # the first bytes of what Git LFS leaves in place of a file that it has not loaded


class WeightsError(ValueError):
    """The checkpoint does not fit the config, or has files missing; the text names each tensor or file."""


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder that are loaded (`used_weights`).

    Raises: WeightsError if one is missing, if there is none, or if the index cannot be read."""
    try:
        files = used_weights(folder)
    except ValueError as error:
        raise WeightsError(str(error)) from None
    missing = [path.name for path in files if not path.is_file()]
    if missing or not files:
        got = f"a folder without {', '.join(missing)}" if missing else "a folder that has none"
        raise WeightsError(f"{folder}: expected weights in .safetensors files, got {got}")
    return files


class _Tensor(msgspec.Struct, frozen=True):
    """An entry in the header of a safetensors file. `data_offsets`: its first byte after the header, and the one after its
    last."""

    data_offsets: tuple[int, int]


def check_whole(path: Path) -> None:
    """Return if this safetensors file has as many bytes as its header says. Weights are not read.

    Raises: WeightsError naming the file, what was expected and what came; OSError."""
    n_bytes = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(_LENGTH_BYTES)
        n_header = int.from_bytes(first, "little")
        if first == _POINTER_BEGINS:
            raise WeightsError(f"{path}: expected a safetensors file, got a pointer of Git LFS; `git lfs pull` loads the file")
        if not 0 < n_header <= min(_MOST_HEADER_BYTES, n_bytes - _LENGTH_BYTES):
            raise WeightsError(f"{path}: expected a safetensors file, got {n_bytes} bytes without a whole header")
        raw = file.read(n_header)
    try:
        header = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        ends = [msgspec.json.decode(header[name], type=_Tensor).data_offsets[1] for name in header if name != "__metadata__"]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WeightsError(f"{path}: expected a safetensors file, got a header that cannot be read: {error}") from None
    expected = _LENGTH_BYTES + n_header + max(ends, default=0)
    if n_bytes != expected:
        raise WeightsError(f"{path}: expected {expected} bytes, as its header says, got {n_bytes}")
