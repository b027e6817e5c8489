"""The beginning of a small GGUF file."""

from __future__ import annotations

from pathlib import Path

import gguf


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
