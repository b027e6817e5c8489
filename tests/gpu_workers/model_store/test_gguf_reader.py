"""The quick reader of GGUF files reads what the reader of the `gguf` package reads, and notices arrays that are cut off."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from gpu_workers.model_store.gguf_file import GgufFile
from gpu_workers.model_store.gguf_header import GgufError
from gpu_workers.model_store.gguf_reader import QuickGgufReader, contents_of

_ARRAYS = {"texts": ["a", "", "caf\u00e9"], "numbers": [-1, 0, 7], "floats": [0.5, -2.25], "flags": [True, False]}


def _write(path: Path, endian: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE) -> None:
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    writer.add_block_count(1)
    for name, values in _ARRAYS.items():
        writer.add_array(f"an.{name}", values)
    writer.add_key_value("an.nested", [[1, 2], [3, 4]], gguf.GGUFValueType.ARRAY)
    writer.add_string("a.text", "last")
    writer.add_tensor("output_norm.weight", np.arange(8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("endian", gguf.GGUFEndian)
def test_all_values_are_those_of_the_package(tmp_path: Path, endian: gguf.GGUFEndian) -> None:
    _write(tmp_path / "tiny.gguf", endian)
    ours, theirs = QuickGgufReader(tmp_path / "tiny.gguf"), gguf.GGUFReader(tmp_path / "tiny.gguf")
    assert {name: contents_of(field) for name, field in ours.fields.items()} == {
        name: field.contents() for name, field in theirs.fields.items()
    }
    assert {name: contents_of(ours.fields[f"an.{name}"]) for name in _ARRAYS} == _ARRAYS
    assert contents_of(ours.fields["a.text"]) == "last"
    assert [tensor.data.tolist() for tensor in ours.tensors] == [tensor.data.tolist() for tensor in theirs.tensors]


def test_each_array_is_one_part(tmp_path: Path) -> None:
    """The package makes views of each element, which takes seconds for the vocabulary of a model."""
    _write(tmp_path / "tiny.gguf")
    fields = QuickGgufReader(tmp_path / "tiny.gguf").fields
    assert {len(fields[f"an.{name}"].data) for name in _ARRAYS} == {1}


@pytest.mark.parametrize("name", _ARRAYS)
def test_a_file_that_ends_within_an_array_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tiny.gguf"
    _write(path)
    whole = path.read_bytes()
    begin = whole.index(f"an.{name}".encode()) + len(f"an.{name}") + 4 + 12  # after the types and the number of elements
    for n_more in (0, 1):
        path.write_bytes(whole[: begin + n_more])
        with pytest.raises(GgufError, match=f"{path}: expected a GGUF file: .* the end of the file"):
            GgufFile(path)


def test_a_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    _write(path)
    path.write_bytes(path.read_bytes().replace("\u00e9".encode(), b"\xff\xff"))
    with pytest.raises(GgufError, match=f"{path}: expected a GGUF file: 'utf-8' codec"):
        GgufFile(path)
