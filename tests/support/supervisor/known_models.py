"""Shapes of well-known models, for tests of placements and plans."""

from __future__ import annotations

from gpu_workers.model_store.model_config import ModelConfig

SMOLLM2 = ModelConfig("llama", 30, 576, 9, 3, 64, 1536, 49_152, 8192, tied_embeddings=True)
LLAMA_8B = ModelConfig("llama", 32, 4096, 32, 8, 128, 14_336, 128_256, 131_072)
LLAMA_70B = ModelConfig("llama", 80, 8192, 64, 8, 128, 28_672, 128_256, 131_072)
