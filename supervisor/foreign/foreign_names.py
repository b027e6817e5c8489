"""Commands and flags of other servers, as their users type them here, and what we have instead.

vLLM's names come first, then those of Ollama, SGLang and llama.cpp where they differ. Add a line to help one more newcomer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from supervisor.foreign.variables import KEYS

_NO_SPLIT = "a model is never split between GPUs and cores; --gpus 0 computes on CPU cores"
_NO_SWAP = "--host-cache BYTES, for keys and values that leave the device; --disk-cache BYTES behind it"
_ALWAYS = "this is always on"
_BY_TEMPLATE = "this is known from the model's chat template"
_EMBEDDINGS = "--embedding-model MODEL, beside --model"
_NOT_YET = "there is no such thing yet"
_OWN_TOKENIZER = "the tokenizer is the one in the model's folder or GGUF file"
_ONE_HOST = "each GPU of this host has a process of its own; there is no second host"
_REQUESTS = "--set gateway.max_active_requests=512, sequences that are accepted at a time"
_RUN = "supervisor run MODEL PROMPT"
_HUB_TOKEN = "the environment variable HF_TOKEN"
_OWN_CONFIG = "this is read from config.json in the model's folder"
_NO_DRAFT_MODEL = "--speculation; drafts come from the text so far, there are no draft models"
_STEP_TOKENS = "--set worker.max_step_tokens=TOKENS"
_KV_DTYPE = "--kv-dtype int8 for q8_0, int4 for q4_0"
_FOREGROUND = "a server stays in the foreground; systemd or a container keeps it in the background"
_WHICH_GPUS = "--gpus NUMBER; CUDA_VISIBLE_DEVICES says which ones"

COMMANDS: Mapping[str, str] = {
    "serve": "supervisor start --model MODEL",
    "launch": "supervisor start --model MODEL",
    "up": "supervisor start",
    "ps": "supervisor status",
    "kill": "supervisor stop for the server; supervisor drill kills its processes, and says what became of the streams",
    "down": "supervisor stop",
    "reload": "supervisor restart",
    "help": "--help, also after each command",
    "version": "--version",
    "create": "supervisor start --model MODEL takes a folder, a GGUF file or a name on the Hugging Face hub",
    "list": "supervisor models",
    "ls": "supervisor models",
    "generate": _RUN,
    "ask": _RUN,
    "download": "supervisor pull",
    "remove": "supervisor rm",
    "delete": "supervisor rm",
    "cp": "supervisor start --model MODEL --model-name NAME",
    "push": "models are fetched and never sent",
    "login": _HUB_TOKEN,
    "signin": _HUB_TOKEN,
    "benchmark": "supervisor bench",
    "collect-env": "supervisor doctor",
    "run-batch": "POST /v1/batch",
    **dict.fromkeys(("keys create", "keys new", "keys generate"), "supervisor keys add --tenant NAME"),
    **dict.fromkeys(("keys rm", "keys remove", "keys delete"), "supervisor keys revoke ID"),
    **dict.fromkeys(("tenants add", "tenants create", "tenants update"), "supervisor tenants set NAME"),
    **dict.fromkeys(("tenants rm", "tenants delete"), "supervisor tenants remove NAME"),
    **dict.fromkeys(("cache clear", "cache flush", "cache drop"), "supervisor cache reset"),
    **dict.fromkeys(("config init", "config new"), "supervisor config sample"),
    "config check": "supervisor check-config",
    "logout": _HUB_TOKEN,
    "audit": "supervisor logs; calls of operators are lines of audit.log in the state directory",
    "complete": "supervisor run --raw MODEL PROMPT; or POST /v1/completions, or messages.client.Client",
}

FLAGS: Mapping[str, str] = {
    "--tensor-parallel-size": "--tp",
    "-tp": "--tp",
    "--tp-size": "--tp",
    "--num-shard": "--tp",
    "--data-parallel-size": "--replicas",
    "-dp": "--replicas",
    "--dp": "--replicas",
    "--dp-size": "--replicas",
    "--pipeline-parallel-size": "--pp",
    "-pp": "--pp",
    "--gpu-memory-utilization": "--set worker.memory_share=0.9",
    "--mem-fraction-static": "--set worker.memory_share=0.9",
    "--kv-cache-memory-bytes": "--set worker.kv_memory_bytes=BYTES",
    "--max-model-len": "--max-length",
    "--context-length": "--max-length",
    "--ctx-size": "--max-length",
    "--num-ctx": "--max-length",
    "--max-total-tokens": "--max-length",
    "-c": "--max-length",
    "--served-model-name": "--model-name",
    "--alias": "--model-name",
    "--model-path": "--model",
    "--model-id": "--model",
    "-m": "--model",
    "--hf-repo": "--model",
    "-hf": "--model",
    "--max-num-seqs": "--max-sequences",
    "--max-running-requests": "--max-sequences",
    "--parallel": "--max-sequences",
    "-np": "--max-sequences",
    "--max-concurrent-requests": _REQUESTS,
    **dict.fromkeys(("--max-num-batched-tokens", "--max-batch-prefill-tokens", "--chunked-prefill-size"), _STEP_TOKENS),
    **dict.fromkeys(("--batch-size", "-b", "--ubatch-size", "-ub"), _STEP_TOKENS),
    "--enable-chunked-prefill": _ALWAYS,
    "--enable-prefix-caching": "it is on; --set scheduler.prefix_reuse=false turns it off",
    "--no-enable-prefix-caching": "--set scheduler.prefix_reuse=false",
    "--disable-radix-cache": "--set scheduler.prefix_reuse=false",
    "--flash-attn": _ALWAYS,
    "-fa": _ALWAYS,
    "--cont-batching": _ALWAYS,
    "--distributed-executor-backend": _ONE_HOST,
    "--nnodes": _ONE_HOST,
    "--enforce-eager": "--set worker.cuda_graphs=false",
    "--disable-cuda-graph": "--set worker.cuda_graphs=false",
    "--attention-backend": "--set worker.attention=auto, torch or triton",
    **dict.fromkeys(("--speculative-config", "--speculative-model", "--num-speculative-tokens"), _NO_DRAFT_MODEL),
    **dict.fromkeys(("--draft-model", "-md"), _NO_DRAFT_MODEL),
    "--n-gpu-layers": _NO_SPLIT,
    "-ngl": _NO_SPLIT,
    "--cpu-offload-gb": _NO_SPLIT,
    "--swap-space": _NO_SWAP,
    "--kv-offloading-size": _NO_SWAP,
    "--num-gpu-blocks-override": "--set worker.kv_memory_bytes=BYTES",
    "--block-size": "a page has 16 tokens",
    "--tokenizer": _OWN_TOKENIZER,
    "--tokenizer-mode": _OWN_TOKENIZER,
    "--uds": "HTTP listens on a port; ZeroMQ clients have a Unix socket, which `supervisor status` shows",
    "--workers": "--gateways for processes that accept requests, --replicas for copies of the model",
    "--threads": "--set worker.threads=NUMBER",
    "-t": "--set worker.threads=NUMBER",
    "--device": "--gpus NUMBER; 0: CPU cores",
    "--api-server-count": "--gateways",
    "--allowed-origins": "--set 'gateway.allowed_origins=[\"https://chat.example.com\"]'",
    "--uvicorn-log-level": "--log-level",
    "--verbose": "--log-level debug",
    "-v": "--log-level debug",
    "--debug": "--log-level debug",
    "--quiet": "--log-level warning",
    "-q": "--log-level warning",
    "--api-key": KEYS,
    "--ssl-keyfile": "--tls-key",
    "--ssl-certfile": "--tls-cert",
    "--ssl-ca-certs": "--tls-client-ca",
    "--scheduling-policy": "--policy",
    "--schedule-policy": "--policy",
    **dict.fromkeys(("--hostname", "--listen", "--bind", "--address"), "--host"),
    "--quantize": "--quantization",
    "--json-output": "--log-format json",
    "--tail": "--lines",
    "--modelfile": "supervisor show MODEL",
    "--license": "supervisor show MODEL",
    "--parameters": "supervisor show MODEL",
    "--seed": "each request has its own seed: the field `seed`",
    "--download-dir": "the environment variable HF_HOME",
    "--hf-token": _HUB_TOKEN,
    "--huggingface-hub-cache": "the environment variable HF_HOME",
    "--revision": "the newest revision is fetched; a folder with another one can be named by --model",
    "--trust-remote-code": "code of a model is never run",
    "--disable-log-requests": "--set gateway.access_log=false",
    "--no-enable-log-requests": "--set gateway.access_log=false",
    "--disable-uvicorn-access-log": "--set gateway.access_log=false",
    "--enable-log-requests": f"{_ALWAYS}, at --log-level info; the texts of requests are never logged",
    "--enable-metrics": f"{_ALWAYS}: GET /metrics",
    "--metrics": f"{_ALWAYS}: GET /metrics",
    "--disable-log-stats": "rates are in GET /metrics and `supervisor top`, and not in the log",
    "--otlp-traces-endpoint": "--set observability.traces=on --set observability.traces_endpoint=URL",
    "--enable-prompt-tokens-details": _ALWAYS,
    "--enable-request-id-headers": _ALWAYS,
    "--max-logprobs": "a request may ask for 20",
    "--kv-cache-dtype": "--kv-dtype auto, int8, int4 or fp8 (GPUs)",
    **dict.fromkeys(("--cache-type-k", "-ctk", "--cache-type-v", "-ctv"), _KV_DTYPE),
    "--enable-lora": _NOT_YET,
    "--lora-modules": _NOT_YET,
    "--limit-mm-per-prompt": _NOT_YET,
    "--enable-expert-parallel": _NOT_YET,
    "--enable-sleep-mode": _NOT_YET,
    "--kv-transfer-config": _NOT_YET,
    **dict.fromkeys(("--hf-overrides", "--rope-scaling", "--rope-freq-base"), _OWN_CONFIG),
    **dict.fromkeys(("--lora", "--mmproj"), _NOT_YET),
    **dict.fromkeys(("--main-gpu", "-mg"), _WHICH_GPUS),
    **dict.fromkeys(("--daemon", "-d", "--detach", "--background"), _FOREGROUND),
    **dict.fromkeys(("--guided-decoding-backend", "--structured-outputs-config", "--async-scheduling"), _ALWAYS),
    "--request-timeout": "--set gateway.request_timeout_s=SECONDS",
    "--keep-alive": "a server has one model, which stays loaded",
    "--api-key-file": KEYS,
    "--log-config-file": "--log-level, --log-format",
    "--chat-template": "--set gateway.chat_template=FILE; else the model's own is used",
    "--default-chat-template-kwargs": "--set 'gateway.chat_template_kwargs={enable_thinking = false}'",
    "--enable-auto-tool-choice": _ALWAYS,
    "--chat-template-content-format": _BY_TEMPLATE,
    "--tool-call-parser": _BY_TEMPLATE,
    "--reasoning-parser": f"{_BY_TEMPLATE}; --set gateway.reasoning=NAME names another form of reasoning",
    "--enable-reasoning": _ALWAYS,
    "--jinja": _ALWAYS,
    "--generation-config": "--set gateway.generation_config=auto or none",
    "--override-generation-config": "--set 'gateway.default_sampling={temperature = 0.5}'",
    "--runner": _EMBEDDINGS,
    "--task": _EMBEDDINGS,
    "--embeddings": _EMBEDDINGS,
    "--is-embedding": _EMBEDDINGS,
    "--embedding": _EMBEDDINGS,
}


_ACTOR = re.compile(r"[a-z_-]+/[0-9]+(\.[0-9]+b?)?$")


def hint(name: str, table: Mapping[str, str]) -> str:
    """The hint for a foreign name; "" for a name that is not in the table."""
    instead = table.get(name, "")
    return f"here it is {instead}" if instead.startswith(("--", "-o ", "supervisor ")) else instead


class CommandWithHints(click.Command):
    """A command that knows the flags of other servers, and says which flag takes a port, a file or a model."""

    allow_extra_args = True  # refused below, with a hint

    def __init__(self, *arguments: Any, foreign: Mapping[str, str] | None = None, **more: Any) -> None:
        """`foreign`: flags that are asked of this command alone, and what there is instead."""
        super().__init__(*arguments, **more)
        self._foreign = foreign or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises: click.UsageError with a hint, click.BadParameter for an unusable value."""
        given = [arg.partition("=")[0] for arg in args]
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            for name in [error.option_name] if error.option_name in given else given:  # of "-tp", click names "-t"
                if said := self.hint_for(name):
                    raise click.UsageError(f"{name}: unknown; {said}", ctx) from None
            raise
        except click.MissingParameter:  # its message names the parameter, and is made late
            raise
        except click.BadParameter as error:  # of a range, click says that 'x' is no valid integer range
            said = error.message.replace("integer range", "integer").replace("float range", "float")
            raise click.BadParameter(said, error.ctx, error.param, error.param_hint) from None
        if rest and not ctx.resilient_parsing:
            raise click.UsageError(f"{rest[0]}: expected no more arguments{self.instead_of(rest[0])}", ctx)
        return rest

    def hint_for(self, name: str) -> str:
        """What there is in the place of a flag; "" if nothing is known."""
        return hint(name, self._foreign) or hint(name, FLAGS)

    def has_flag(self, flag: str) -> bool:
        """Whether this command has the flag."""
        return any(flag in parameter.opts for parameter in self.params)

    def instead_of(self, value: str) -> str:
        """What was meant by an argument too many."""
        if _ACTOR.match(value):
            return "; this is about a whole server, and its processes restart by themselves; supervisor drill kills some"
        if self.name == "stop" and not value.isdecimal():
            return "; a server has one model, and stop ends the server"
        flag = "--port" if value.isdecimal() else "--config" if value.endswith(".toml") else "--model"
        return f"; did you mean {flag} {value}?" if self.has_flag(flag) else ""


class GroupWithHints(click.Group):
    """A group of such commands that knows the commands of other servers. The table has those of a group in a group with
    its name before them."""

    command_class = CommandWithHints

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, ...]:
        """Parse as click does. Raises: click.UsageError with a hint."""
        typed = " ".join([*([ctx.info_name or ""] if ctx.parent else []), *args[:1]])
        if args and args[0] not in self.commands and (said := hint(typed, COMMANDS)):
            raise click.UsageError(f"{args[0]}: unknown command; {said}", ctx)
        return super().resolve_command(ctx, args)
