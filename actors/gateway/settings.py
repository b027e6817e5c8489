"""The gateway's section of the configuration. Frozen; every field has a default."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from messages.access.tenant_policy import TenantName, TenantPolicy
from messages.errors import ConfigError
from messages.hash_chain import HASH_CHAIN
from messages.lifecycle.model_digests import ModelDigests
from messages.limits import MAX_GROUP_TOKENS

BalancingName = Literal["prefix", "least_tokens", "round_robin"]
_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Window = Annotated[int, msgspec.Meta(ge=256)]  # clients confirm every 64 tokens
_Group = Annotated[int, msgspec.Meta(ge=1, le=MAX_GROUP_TOKENS)]
# pages are told by scheme, host and port, as a browser sends them
_ORIGIN = "scheme://host or scheme://host:port without a path, null or *"
_Origin = Annotated[str, msgspec.Meta(pattern=r"^(\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+)$", description=_ORIGIN)]
_HOST_NAME = "a host name without scheme and port, or *"
_HostName = Annotated[str, msgspec.Meta(pattern=r"^(\*|[A-Za-z0-9._-]+)$", description=_HOST_NAME)]
_HEADER_NAME = "the name of a header, without blanks and colon"
_Header = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]*$", description=_HEADER_NAME)]
_Cosine = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0 * 30)]
_LimitSeconds = Annotated[float, msgspec.Meta(gt=0.0, le=86_400.0 * 30)]  # within 0 s no request can end


class OtherModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model that is served beside the main one, with the template, reasoning and sampling of its own folder."""

    name: str  # as shown in /v1/models
    folder: str  # as `GatewaySettings.model_folder`
    digests: ModelDigests = ModelDigests()
    max_length: _Positive
    numerics: str = ""
    device: Literal["cpu", "cuda"] = "cpu"


class TracesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Traces of requests. What stands neither here nor in the environment has the default of OpenTelemetry."""

    folder: str  # where spans wait for the collector
    endpoint: str = ""  # of the collector, "http://host:4318"; "": what the environment says
    sampling: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None  # see `observability.traces_sampling`


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One gateway's section of the configuration."""

    model_name: str = HASH_CHAIN  # as shown in /v1/models
    model_folder: str = HASH_CHAIN  # folder with config.json, tokenizer.json, ...; or "hash-chain"
    model_digests: ModelDigests = ModelDigests()  # what was in it when the server was started
    numerics: str = ""  # what beside the model decides the exact tokens: dtype, ranks, devices, kernels
    chat_template: str = ""  # a file, or the template itself, in Jinja; "": the model's own
    chat_template_kwargs: dict[str, str | int | float | bool | None] = {}  # variables for it, unless a request has its own
    # parameters of sampling where a request has none: auto (the model's generation_config.json), or none (OpenAI's)
    generation_config: Literal["auto", "none"] = "auto"
    default_sampling: dict[str, int | float] = {}  # the same, by their names in /v1/completions; they win over the model's
    reasoning: str = "auto"  # how the model marks it: auto (what the chat template has), none, qwen3, deepseek_r1, ...
    deterministic: bool = False  # the worker's setting of this name
    max_length: _Positive = 8192  # tokens of one sequence, prompt and output
    device: Literal["cpu", "cuda"] = "cpu"  # where the model is
    other_models: list[OtherModel] = []  # beside it: model 1, the fallback model
    # with a fallback model: it answers new requests while no replica of the main model has been ready for this time
    fallback_after_s: Annotated[float, msgspec.Meta(ge=0.0, le=60.0)] = 0.1
    embedding_model: str = ""  # as shown in /v1/models; "": the server computes no embeddings
    embedding_folder: str = ""  # folder with its tokenizer.json
    embedding_digests: ModelDigests = ModelDigests()  # what was in it when the server was started
    embedding_length: Annotated[int, msgspec.Meta(ge=0)] = 0  # tokens of its longest text
    embedding_dimensions: Annotated[int, msgspec.Meta(ge=0)] = 0  # of its vectors
    embedding_normalized: bool = True  # its vectors have length 1
    embedding_prompts: dict[str, str] = {}  # by name: what stands before a text
    embedding_device: str = "cpu"  # where this model is: cpu, cuda or cuda:N
    embedding_default_prompt: str = ""  # the name of the prompt that texts get without asking; "": none
    zeromq_endpoint: str = ""  # address for ZeroMQ clients, "ipc://..."; "": none
    zeromq_key_file: str = ""  # of the CURVE keys for that second address; "": it is not encrypted
    audit_file: str = ""  # lines for the calls that need the role admin; "": none
    zeromq_tcp_endpoint: str = ""  # a second address for them, "tcp://127.0.0.1:5555"; "": none
    custodian_socket: str = ""  # the custodian's unix socket; "": client connections end with this process
    http_sockets: list[str] = []  # where gateways forward calls to each other, by index; empty: there is only one
    # names in Host beside addresses and localhost; ["*"]: any; empty: any if not on loopback
    allowed_hosts: list[_HostName] = []
    allowed_origins: list[_Origin] = []  # whose pages may use this server and read its answers (CORS); ["*"]: all pages
    tls_cert: str = ""  # file with the certificate for HTTPS and those that sign it, in PEM; "": plain HTTP
    tls_key: str = ""  # file with its private key, in PEM, without a passphrase
    # file with certificates in PEM: clients must show one that one of them has signed; "": they need none
    tls_client_ca: str = ""
    names_holders: bool = False  # schedulers learn which other replica has more of a prompt, and can get its pages
    have_gateways_changed: bool = False  # their number, of late: requests may be at gateways that do not own their ids now
    journal_path: str = ""  # folder of its files; "": in memory, requests do not survive the gateway
    gateways: Annotated[int, msgspec.Meta(ge=0)] = 0  # of this server; journals of others beside this one are adopted; 0: none
    vllm_metrics: bool = True  # /metrics has vLLM's names beside our own, for dashboards and scalers that know those
    traces: TracesSettings | None = None  # None: requests are not traced
    access_log: bool = True  # a log line for each request that is over or refused, at level info; false: none
    strict_fields: bool = False  # true: an unknown field of an HTTP request is refused; false: ignored, and the answer says so
    max_body_bytes: _Positive = 16 << 20  # of one request; above it: 413
    max_bodies_bytes: _Positive = 256 << 20  # of all large requests being read, HTTP and ZeroMQ together; above it: 503
    max_active_requests: _Positive = 4096  # sequences accepted at a time; above it: 429 with Retry-After
    # tokens of prompts and expected output in accepted requests that have no token yet; above it: 429 with Retry-After
    max_queued_tokens: _Positive = 1 << 24
    # from level 2 of degradation on (scheduler.degraded_wait_s), new requests get at most so many answers to a prompt; 0: as
    # many as they ask for
    degraded_n: Annotated[int, msgspec.Meta(ge=0)] = 0
    # from level 3 of degradation on, answers to new requests have at most so many tokens; 0: as many as they ask for
    degraded_max_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    keys_file: str = ""  # of API keys, which every call but those of probes must show; "": none are asked for
    tenants: dict[TenantName, TenantPolicy] = {}  # weight, priority and limits of tenants, by name; they need keys
    tenants_file: str = ""  # of those that were set while the server runs
    operator_key: str = ""  # opens what is the operator's over HTTP and TCP, in the header X-Operator-Key; "": nothing does
    schedulers: Annotated[int, msgspec.Meta(ge=0)] = 0  # of this server: one for each replica
    caller_header: _Header = ""  # names the caller, as "authorization" with a proxy that checks it; "": the client's address
    max_n: _Positive = 128  # sequences of one request
    max_batch: _Positive = 4096  # prompts of one request
    default_max_tokens: _Positive = 16  # of /v1/completions without max_tokens; OpenAI's default
    request_timeout_s: _LimitSeconds = 3600.0  # an accepted request that has not ended by then fails
    retention_s: _Seconds = 600.0  # how long clients can still ask for a finished request
    orphan_s: _Seconds = 60.0  # a resumable request is cancelled after this time without a reader
    resubmit_budget: _Positive = 16  # scheduler failures in a row that a sequence survives without a new token
    failover_s: _Seconds = 0.05  # a replica whose standby has not taken over after this time loses its sequences to another one
    stalled_s: _Seconds = 30.0  # work that waits for this time, while its replica does no step, is a standstill in /health
    balancing: BalancingName = "prefix"  # which replica gets a sequence: prefix, least_tokens or round_robin
    # longest wait for the cache directory's answer; 0: 5 ms, or 50 ms where the model runs on CPU cores, whose steps may keep
    # the directory from one
    prefix_wait_s: _Seconds = 0.0
    whole_tokens: _Group = 16  # tokens in one message to the gateway, for answers that are not streamed
    stream_window_tokens: _Window = 4096  # tokens that one ZeroMQ client may leave unconfirmed
    handover_s: _Seconds = 5.0  # a drain waits this time for a client that reads nothing of its finished answer
    shutdown_s: _Seconds = 5.0  # longest wait at exit for clients that still read finished answers
    commit_window_s: _Seconds = 0.0  # the journal collects entries for this time before each commit; 0: commit at once
    ack_messages: _Positive = 16  # messages of a scheduler for each Ack to it; each Ack wakes two processes
    journal_buffer_bytes: _Positive = 64 << 20  # kept in memory while the disk refuses writes; above it streams pause
    journal_http_streams: bool = True  # false: only HTTP streams whose client has given an id can be asked for again
    journal_sync: bool = False  # fsync each commit: survives power loss, not only the death of a process
    # exact: the answer to a greedy or seeded request is kept, and equal requests get it; semantic: requests of the same caller
    # whose question means nearly the same get it too; off: each is computed
    answer_cache: Literal["off", "exact", "semantic"] = "off"
    answer_cache_bytes: _Positive = 64 << 20  # of the kept answers of one gateway
    answer_cache_ttl_s: _LimitSeconds = 3600.0  # an answer is kept for this time
    # semantic: the least cosine similarity of two questions with one answer
    semantic_threshold: _Cosine = 0.95
    semantic_thresholds: dict[str, _Cosine] = {}  # the same for single tenants, or for callers by the value of caller_header
    # longest wait of a request for the answer to a similar one; 0: 0.1 s, or 2 s where the model runs on CPU cores, for whose
    # steps the vector of the question waits
    semantic_wait_s: _Seconds = 0.0
    answer_coalescing: bool = False  # true: of equal greedy or seeded requests that run at the same time, one is computed
    max_connections: _Positive = 8192  # open HTTP connections; above it: 503
    # of one caller: above it 429. 0: its share of max_connections where API keys or caller_header tell callers apart, otherwise
    # no bound, because an address may be that of a proxy
    max_caller_connections: Annotated[int, msgspec.Meta(ge=0)] = 0
    head_s: _Seconds = 15.0  # time for a client to send its headers
    body_s: _Seconds = 120.0  # time for a client to send its whole request
    unread_s: _Seconds = 120.0  # a client that reads nothing of its answer for this time is disconnected
    keep_alive_s: _Positive = 75  # an HTTP connection that is idle for this time is closed
    sse_ping_s: _Seconds = 15.0  # a stream without tokens for this time gets a comment line, so that proxies keep it

    @property
    def names_callers(self) -> bool:
        """True if callers are told apart by more than their addresses, so that each has caches of its own."""
        return bool(self.caller_header or self.keys_file)


def read_settings(raw: bytes | msgspec.Raw) -> GatewaySettings:
    """Decode a gateway's settings from JSON. Raises: ConfigError that names the key."""
    try:
        return msgspec.json.decode(bytes(raw), type=GatewaySettings)
    except msgspec.DecodeError as error:
        raise ConfigError(f"gateway: {error}") from None
