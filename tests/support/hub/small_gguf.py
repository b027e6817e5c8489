"""The beginning of a small GGUF file, and a whole one."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

TEMPLATE = "{{ messages[0]['content'] }}"


def qwen2_writer(path: Path) -> gguf.GGUFWriter:
    """A writer of a file of a tiny Qwen2, which has its sizes and no tokens yet."""
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(2)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    return writer


def gguf_content(folder: Path) -> bytes:
    """A small GGUF file of a Qwen2, which is made in this folder."""
    path = folder / "made.gguf"
    writer = qwen2_writer(path)
    writer.add_token_list(["a", "b"])
    writer.add_eos_token_id(1)
    writer.add_file_type(7)
    writer.add_license("mit")
    writer.add_chat_template(TEMPLATE)
    writer.add_tensor("token_embd.weight", np.zeros((100, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()
