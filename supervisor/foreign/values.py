"""Values of settings as users of other servers write them, and what to write here. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_STARTS = "a checkpoint of this form starts without the flag"

VALUES: Mapping[str, Mapping[str, str]] = {
    "worker.dtype": {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32"},
    "worker.quantization": {
        **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors"), _STARTS),
        "bitsandbytes": "int8 or int4 on CPU cores, fp8 on GPUs",
        **dict.fromkeys(("q8", "q8_0", "8bit"), "int8"),
        **dict.fromkeys(("q4", "q4_0", "4bit"), "int4"),
    },
    "worker.kv_dtype": {"fp8_e4m3": "fp8", "q8_0": "int8", "q4_0": "int4"},
    "scheduler.policy": {"fifo": "fcfs"},
    "log_level": {"warn": "warning", "trace": "debug", "critical": "error", "fatal": "error"},
}


def value_hint(path: str, value: object) -> str:
    """What to write in the place of another server's value of the key at `path`, to follow an error; "" if nothing is known."""
    instead = VALUES.get(path, {}).get(value) if isinstance(value, str) else None
    if instead is None:
        return ""
    return f"; {instead}" if instead == _STARTS else f"; here it is {instead}"
