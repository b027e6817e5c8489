"""Any model and any host with GPUs, for tests of placements with hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.runner.memory_estimate import GIB
from supervisor.placement.hardware import Gpu, Host

MODELS = st.builds(
    lambda layers, head_dim, kv, shared, ffn, vocabulary, context: ModelConfig(
        "llama", layers, head_dim * kv * shared, kv * shared, kv, head_dim, ffn, vocabulary, context
    ),
    st.integers(1, 100),
    st.sampled_from([64, 128]),
    st.integers(1, 16),
    st.integers(1, 16),
    st.integers(64, 30_000),
    st.integers(1000, 200_000),
    st.integers(256, 200_000),
)
HOSTS = st.builds(
    lambda n, gib, capability: Host(tuple(Gpu(str(i), "some GPU", int(gib * GIB), capability) for i in range(n)), 64 * GIB),
    st.integers(1, 16),
    st.floats(8, 300),
    st.sampled_from([(7, 0), (7, 5), (8, 0), (9, 0), (12, 0)]),
)
