"""What a gateway can be told by its configuration. Frozen; every field has a default that serves."""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.errors import ConfigError

HASH_CHAIN = "hash-chain"
HASH_CHAIN_VOCABULARY = 32_768

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Window = Annotated[int, msgspec.Meta(ge=256)]  # clients confirm every 64 tokens
_Group = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
_Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0 * 30)]


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One gateway's section of the configuration."""

    model_name: str = "hash-chain"  # as shown in /v1/models
    model_folder: str = HASH_CHAIN  # folder with config.json, tokenizer.json, ...; or "hash-chain"
    max_length: _Positive = 8192  # tokens of one sequence, prompt and output
    front_endpoint: str = ""  # ZeroMQ front, "ipc://..."; empty: none
    front_tcp_endpoint: str = ""  # a second address of the same front, "tcp://127.0.0.1:5555"; empty: none
    journal_path: str = ""  # SQLite file; empty: in memory, nothing survives the gateway
    max_body_bytes: _Positive = 16 << 20
    max_bodies_bytes: _Positive = 256 << 20  # of large requests being read, HTTP and ZeroMQ together; above it: 503
    max_active_requests: _Positive = 4096  # above it: 429 with Retry-After
    max_n: _Positive = 128  # sequences of one request
    max_batch: _Positive = 4096  # prompts of one request
    default_max_tokens: _Positive = 16  # of /v1/completions without max_tokens, as OpenAI has it
    request_timeout_s: _Seconds = 3600.0  # an accepted request ends after this, whatever happens
    retention_s: _Seconds = 600.0  # how long a finished request can still be asked for
    orphan_s: _Seconds = 60.0  # how long a resumable request goes on without a reader
    resubmit_budget: _Positive = 16  # schedulers that broke in a row with a sequence, without a new token
    prefix_wait_s: _Seconds = 0.005  # longest wait for the directory's answer
    whole_tokens: _Group = 16  # of an answer that is not streamed a scheduler tells so many at a time
    stream_window_tokens: _Window = 4096  # tokens on the way to one ZeroMQ client without its Received
    handover_s: _Seconds = 5.0  # while draining, an ended answer waits so long for a client that takes nothing of it
    shutdown_s: _Seconds = 5.0  # longest wait for open HTTP connections at the end
    commit_window_s: _Seconds = 0.0  # how long the journal gathers before a commit; 0: as soon as the last one is done
    ack_messages: _Positive = 16  # a scheduler hears of every 16th message that is recorded: each Ack wakes two processes
    journal_buffer_bytes: _Positive = 64 << 20  # shown but not recorded while the disk refuses; then streams pause
    journal_sync: bool = False  # fsync each commit (survives power loss, not only process death)
    max_connections: _Positive = 8192  # open HTTP connections; above it: 503
    head_s: _Seconds = 15.0  # a client has so long to send its headers,
    body_s: _Seconds = 120.0  # and so long for the whole request
    unread_s: _Seconds = 120.0  # a client that takes nothing of what waits for it is cut after so long
    keep_alive_s: _Positive = 75  # idle HTTP connections
    sse_ping_s: _Seconds = 15.0  # comment line into silent streams, so that proxies keep them


def read_settings(raw: bytes | msgspec.Raw) -> GatewaySettings:
    """Decode a gateway's settings.

    Raises: ConfigError naming the key.
    """
    try:
        return msgspec.json.decode(bytes(raw), type=GatewaySettings)
    except msgspec.DecodeError as error:
        raise ConfigError(f"gateway: {error}") from None
