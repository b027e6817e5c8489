"""Variables of the environment that configure other servers and have no effect here, and what has it instead. Pure."""

from __future__ import annotations

from collections.abc import Mapping

KEYS = "--api-keys; `supervisor keys add` makes a key"
_HUB = "the environment variable HF_HOME: models lie in the cache of the Hugging Face hub"

VARIABLES: Mapping[str, str] = {
    "VLLM_API_KEY": KEYS,
    "VLLM_ATTENTION_BACKEND": "--set worker.attention=auto, torch or triton",
    "VLLM_LOGGING_LEVEL": "--log-level",
    "VLLM_CPU_KVCACHE_SPACE": "--set worker.kv_memory_bytes=BYTES",
    "VLLM_CPU_OMP_THREADS_BIND": "--set worker.threads=NUMBER",
    "OLLAMA_HOST": "--host, --port",
    "OLLAMA_MODELS": _HUB,
    "OLLAMA_CONTEXT_LENGTH": "--max-length; the model's own length without it",
    "OLLAMA_NUM_PARALLEL": "--max-sequences, for each replica",
    "OLLAMA_MAX_QUEUE": "--set gateway.max_active_requests=512, sequences that are accepted at a time",
    "OLLAMA_KV_CACHE_TYPE": "--kv-dtype int8 for q8_0, int4 for q4_0",
    "OLLAMA_ORIGINS": "--set 'gateway.allowed_origins=[\"https://chat.example.com\"]'",
    "OLLAMA_KEEP_ALIVE": "a server has one model, which stays loaded",
    "OLLAMA_MAX_LOADED_MODELS": "a server has one model; --embedding-model and --fallback-model add one each",
    "OLLAMA_DEBUG": "--log-level debug",
    "LLAMA_ARG_MODEL": "--model",
    "LLAMA_ARG_CTX_SIZE": "--max-length",
    "LLAMA_API_KEY": KEYS,
}


def notices(environment: Mapping[str, str]) -> list[str]:
    """A line for each variable that is set, for somebody who starts a server. Values, which may be secrets, are not in it."""
    return [
        f"{name} is set and has no effect; here it is {instead}" for name, instead in VARIABLES.items() if environment.get(name)
    ]
