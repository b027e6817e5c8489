"""Flags of other load tools, as their users type them after `supervisor bench`, and what there is instead: vLLM's and SGLang's
benchmarks first, then guidellm, aiperf, and the short names of ab and hey."""

from __future__ import annotations

from collections.abc import Mapping

_ADDRESS = "the address is the first argument, URL"
_PROMPTS = "--prompts FILE; without it, random tokens of the length --input"

LOAD_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("--num-prompts", "--max-requests", "--request-count", "--num-requests", "-n"), "--requests"),
    **dict.fromkeys(("--max-concurrency", "--clients", "-c"), "--concurrency"),
    **dict.fromkeys(("--request-rate", "--rps", "--qps"), "--rate"),
    **dict.fromkeys(("--random-input-len", "--random-input", "--input-len", "--input-tokens", "--prompt-tokens"), "--input"),
    **dict.fromkeys(("--isl", "--synthetic-input-tokens-mean"), "--input"),
    **dict.fromkeys(("--random-output-len", "--random-output", "--output-len", "--output-tokens", "--max-tokens"), "--output"),
    **dict.fromkeys(("--osl", "--output-tokens-mean"), "--output"),
    **dict.fromkeys(("--base-url", "--url", "-u", "--host", "--target", "--server"), _ADDRESS),
    **dict.fromkeys(("--dataset-name", "--dataset", "--dataset-path", "--data"), _PROMPTS),
    **dict.fromkeys(
        ("--backend", "--endpoint-type"), "any server that speaks OpenAI's API is asked; --endpoint completions or chat"
    ),
    "--num-warmups": "--warmup",
    "--warmup-requests": "--warmup",
    "--max-seconds": "--duration",
    "--benchmark-duration": "--duration",
    "--extra-body": "--extra",
    "--extra-inputs": "--extra",
    "--extra-request-body": "--extra",
    "--streaming": "answers are always streamed",
    **dict.fromkeys(("--save-result", "--result-filename", "--output-file", "--output-path"), "--out"),
}
