"""The worker section of the configuration: which model, on which device, within which memory."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from messages.errors import ConfigError
from messages.hash_chain import HASH_CHAIN, HASH_CHAIN_VOCABULARY
from messages.lifecycle.model_digests import ModelDigests
from messages.limits import MAX_LEASE_STEPS, MAX_SEQUENCES

DeviceKind = Literal["cpu", "cuda"]
DtypeChoice = Literal["auto", "float32", "bfloat16", "float16"]
AttentionChoice = Literal["auto", "torch", "triton"]
FP8_CAPABILITY = (9, 0)  # compute capability of GPUs that multiply 8-bit floats by our kernels
KvDtype = Literal["auto", "int8", "int4", "fp8"]
PAGES_CAPABILITY: dict[KvDtype, tuple[int, int]] = {  # of GPUs that have bfloat16, for scales, and convert such numbers quickly
    "auto": (0, 0), "int8": (8, 0), "int4": (8, 0), "fp8": (8, 9),
}  # fmt: skip
UrgentStream = Literal["auto"] | bool
HostCacheDtype = Literal["same", "int4", "adaptive"]
Quantization = Literal["none", "exact", "int8", "int4", "fp8"]
QuantizationChoice = Literal["auto", "none", "exact", "int8", "int4", "fp8"]
_SLOTS = {"cpu": 64, "cuda": 256}
_STEP_TOKENS = {"cpu": 1024, "cuda": 8192}
_LEASE_STEPS = {"cpu": 4, "cuda": 8}
_LEASE_S = {"cpu": 0.04, "cuda": 0.005}  # longer on a CPU, where planning takes time from the cores that compute
# CUDA loads kernels at their first use, and allocating memory may wait for the whole device.
_LEAST_HANG_S = {"cpu": 0.5, "cuda": 1.0}
# What gates cost the short steps of smaller models has not been measured; a prompt that waits for one waits for less
_LEAST_BESIDE_PARAMETERS = 2_000_000_000
_MOST_BESIDE_TOKENS = 2048  # longer prompts would rather wait: beside others they take longer
_HASH_CHAIN_MAX_LENGTH = 131_072


class WorkerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of one rank. The supervisor fills them in and passes them as `SpawnSpec.settings`.

    A default of 0 means that the value is chosen by device or model.
    """

    model_folder: str = HASH_CHAIN  # a resolved model folder (or GGUF file), or "hash-chain"
    model_digests: ModelDigests = ModelDigests()  # what was in it when the server was started
    load_format: Literal["auto", "random"] = "auto"  # "random": weights of the model's shape from a fixed seed
    # of weights and activations; auto: bfloat16 on GPUs, float32 on CPU cores
    dtype: DtypeChoice = "auto"
    # of keys and values in their pages; auto: as dtype; 8 bits with a scale for each token and head: int8, integers, or fp8,
    # floats (e4m3), on GPUs only; int4: keys of 5 bits and values of 3.5, for heads whose size is a power of two
    kv_dtype: KvDtype = "auto"
    # of the weights of linear layers; exact: as the files have them: on CPU cores with AVX-512 or AVX2, in float32, the
    # integers of GGUF files of type Q4_1 or Q8_0 and of quantised checkpoints stay as they are and are multiplied with floats;
    # on GPUs fp8 for checkpoints of 8-bit floats with scales of rows and inputs of 8 bits; elsewhere none; none: floats; int8,
    # int4: integers with a scale for each group of inputs, and inputs rounded to integers, on CPU cores only; fp8: 8-bit floats
    # (e4m3) with a scale for each row, on GPUs only, and the head keeps the dtype; auto: on GPUs fp8 for checkpoints of 8-bit
    # floats, else none; on CPU cores with instructions for 8-bit integers (VNNI), unless a dtype is named: int4 for GGUF files
    # of type Q4_1 and checkpoints of 4-bit integers, int8 for others
    quantization: QuantizationChoice = "exact"
    device: DeviceKind = "cpu"
    device_index: Annotated[int, msgspec.Meta(ge=0)] = 0
    rank: Annotated[int, msgspec.Meta(ge=0)] = 0
    tp: Annotated[int, msgspec.Meta(ge=1)] = 1
    pp: Annotated[int, msgspec.Meta(ge=1)] = 1  # stages of the gang's pipeline, of tp ranks each
    # sequences at once; 0: 64 on a CPU; 256 on GPUs; on one GPU up to 1,024, or 384 where it has urgent steps, if its memory
    # has room for 1,024 tokens of each
    n_slots: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCES)] = 0
    max_length: Annotated[int, msgspec.Meta(ge=0)] = 0  # tokens of one sequence; 0: the limit of the model
    max_step_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0  # tokens computed in one step; 0: 8192 on a GPU, 1024 on a CPU
    # memory for keys and values; 0: measured on a GPU; an eighth of the memory, at most 2 GiB, on a CPU
    kv_memory_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    # on CPU cores: the memory in use for keys and values follows the load, from so much up to kv_memory_bytes; 0: all of it is
    # used from the beginning
    kv_least_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    # ordinary memory of a rank for pages that are evicted, on GPUs pinned; they come back when that is faster than to compute
    # them; 0: none
    host_cache_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    # on CPU cores: the memory of the host tier in use follows the load, from so much up to host_cache_bytes; 0: it grows as
    # pages fill it, and none is given back
    host_cache_least_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    # what this memory holds; same: pages as they are; int4: compressed pages, whose numbers are rounded; adaptive: pages as
    # they are while there is room, then those compressed that were not used for longest
    host_cache_dtype: HostCacheDtype = "same"
    # size of a rank's file for pages of the host tier; they come back when that is faster than to compute them; 0: none
    disk_cache_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    disk_cache_dir: str = ""  # where these files are; empty: "pages" in state_dir
    # memory of the host, pinned on GPUs, through which a rank gives pages to other replicas; 0: none; it needs a vault
    exchange_bytes: Annotated[int, msgspec.Meta(ge=0)] = 0
    disk_cache_kept: bool = True  # when the server stops, the files stay for its next start
    memory_share: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.9  # of a GPU's memory for this server, with weights
    # steps of one plan at most; 0: 8 on a GPU, 4 on a CPU
    max_lease_steps: Annotated[int, msgspec.Meta(ge=0, le=MAX_LEASE_STEPS)] = 0
    # time that the steps of one plan should take at most; 0: 0.005 on a GPU, 0.04 on a CPU
    lease_s: Annotated[float, msgspec.Meta(ge=0.0, le=10.0)] = 0.0
    threads: Annotated[int, msgspec.Meta(ge=0)] = 0  # threads of torch on this rank; 0: all cores divided by `cpu_ranks`
    cpu_ranks: Annotated[int, msgspec.Meta(ge=1)] = 1  # worker processes that share this machine's cores
    vault: bool = False  # the KV memory lies in the replica's vault and outlives this process
    shared_weights: bool = True  # with a vault: the weights lie there, once for all processes of a rank
    standby: bool = False  # a second gang of the same size has to fit beside this one
    attention: AttentionChoice = "auto"  # auto: triton on GPUs where its kernels can compute the model
    cuda_graphs: bool = True  # steps on a GPU are captured once and replayed
    # on one GPU, an urgent prompt is computed on a stream of its own, beside the steps in flight; scheduler.urgent_tokens;
    # auto: with models of two billion parameters or more; steps of smaller ones are short
    urgent_stream: UrgentStream = "auto"
    deterministic: bool = False  # the tokens of a request depend on the request alone, not on what is computed beside it
    hash_chain_pages: Annotated[int, msgspec.Meta(ge=0)] = 4096  # pages of the model hash-chain, which is for tests
    # the vocabulary of this model
    hash_chain_vocabulary: Annotated[int, msgspec.Meta(ge=2, le=2**31 - 1)] = HASH_CHAIN_VOCABULARY
    hash_chain_step_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0  # its artificial time of one step
    hash_chain_pulse: str = ""  # a file: while it is there and has not been touched for a second, its steps are slow

    @property
    def is_hash_chain(self) -> bool:
        """True if the model is the hash chain."""
        return self.model_folder == HASH_CHAIN

    def beside_tokens(self, n_parameters: int) -> int:
        """Most tokens of an urgent plan that runs beside others; 0: none does, because that is off, or because steps share
        memory: on CPU cores, in collectives, in deterministic kernels, for keys of pages with fewer bits. n_parameters: of the
        model's layers."""
        is_alone = self.device == "cuda" and self.n_ranks == 1 and not self.deterministic and self.kv_dtype == "auto"
        is_wanted = n_parameters >= _LEAST_BESIDE_PARAMETERS if self.urgent_stream == "auto" else self.urgent_stream
        return min(_MOST_BESIDE_TOKENS, self.step_tokens) if is_wanted and is_alone else 0

    @property
    def n_ranks(self) -> int:
        """Ranks of the gang."""
        return self.tp * self.pp

    @property
    def stage(self) -> int:
        """The stage of this rank in the gang's pipeline, 0 .. pp - 1."""
        return self.rank // self.tp

    @property
    def tensor_rank(self) -> int:
        """The rank within its stage, 0 .. tp - 1."""
        return self.rank % self.tp

    @property
    def reporter(self) -> int:
        """The rank that answers the scheduler for its gang: the first one that samples."""
        return (self.pp - 1) * self.tp

    @property
    def is_reporter(self) -> bool:
        """True if that is this rank."""
        return self.rank == self.reporter

    @property
    def slots(self) -> int:
        """Sequences at once: `n_slots`, in which the placement has put its decision, or the least of the device."""
        return self.n_slots or _SLOTS[self.device]

    @property
    def step_tokens(self) -> int:
        """Tokens computed in one step, at most; never fewer than one for each slot."""
        return max(self.max_step_tokens or _STEP_TOKENS[self.device], self.slots)

    @property
    def lease_steps(self) -> int:
        """Steps of one plan, at most."""
        if self.pp > 1:
            return 1  # the next step of the same sequences would keep those of the other stages waiting
        return self.max_lease_steps or (1 if self.is_hash_chain else _LEASE_STEPS[self.device])

    @property
    def lease_seconds(self) -> float:
        """How long the steps of one plan should take, at most."""
        return self.lease_s or _LEASE_S[self.device]

    @property
    def least_hang_s(self) -> float:
        """No step counts as hung before it has run for this long, whatever was expected of it."""
        return _LEAST_HANG_S[self.device]

    @property
    def dtype_name(self) -> str:
        """The torch dtype's name that "auto" stands for."""
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if self.device == "cuda" else "float32"

    @property
    def quantization_name(self) -> Quantization:
        """The quantisation of the weights. What "auto" stands for is decided before ranks are started, so a rank that still
        finds it here leaves the weights as they are."""
        keeps_floats = self.quantization == "exact" and (self.device != "cpu" or self.dtype_name != "float32")
        return "none" if self.quantization == "auto" or keeps_floats else self.quantization

    def length_limit(self, model_max_length: int = _HASH_CHAIN_MAX_LENGTH) -> int:
        """Tokens of one sequence: `max_length`, but at most the model's own limit."""
        return min(self.max_length or model_max_length, model_max_length)


def read_settings(text: bytes | msgspec.Raw) -> WorkerSettings:
    """Decode the worker section of the configuration from JSON.

    Raises: ConfigError naming the field.
    """
    try:
        settings = msgspec.json.decode(text, type=WorkerSettings)
    except msgspec.DecodeError as error:
        raise ConfigError(f"worker: {error}") from None
    if settings.rank >= settings.n_ranks:
        raise ConfigError(f"worker.rank: expected less than tp * pp = {settings.n_ranks}, got {settings.rank}")
    check_disk_cache(settings)
    check_kv_least(settings)
    check_host_least(settings)
    check_host_dtype(settings)
    return settings


def check_disk_cache(settings: WorkerSettings) -> None:
    """Raises: ConfigError for a disk tier without a host tier, through which its pages come back."""
    if settings.disk_cache_bytes and not settings.host_cache_bytes:
        expected = "expected 0 without worker.host_cache_bytes (--host-cache)"
        raise ConfigError(f"worker.disk_cache_bytes: {expected}, got {settings.disk_cache_bytes}")


def check_kv_least(settings: WorkerSettings, device: DeviceKind | None = None) -> None:
    """device: the one that was chosen; None: that of the settings. Raises: ConfigError for memory that cannot follow the load,
    and for a least size above the size."""
    least, most = settings.kv_least_bytes, settings.kv_memory_bytes
    if least and (device or settings.device) == "cuda":
        raise ConfigError(f"worker.kv_least_bytes: expected 0 on GPUs, where captured graphs fix the memory, got {least}")
    if most and least > most:
        raise ConfigError(f"worker.kv_least_bytes: expected at most worker.kv_memory_bytes = {most}, got {least}")


def check_host_least(settings: WorkerSettings, device: DeviceKind | None = None) -> None:
    """device: as of `check_kv_least`. Raises: ConfigError for a host tier that cannot follow the load, and for a least size
    above the size."""
    least, most = settings.host_cache_least_bytes, settings.host_cache_bytes
    expected = ""
    if least and (device or settings.device) == "cuda":
        expected = "0 on GPUs, where the memory of the host tier is pinned"
    elif least and settings.host_cache_dtype == "adaptive":
        expected = "0 with worker.host_cache_dtype adaptive, whose places share their memory"
    elif least > most:
        expected = f"at most worker.host_cache_bytes = {most}"
    if expected:
        raise ConfigError(f"worker.host_cache_least_bytes: expected {expected}, got {least}")


def check_host_dtype(settings: WorkerSettings) -> None:
    """Raises: ConfigError for compressed places without a host tier, of pages that are small already, or where rounding must
    not change tokens."""
    if settings.host_cache_dtype == "same":
        return
    reason = "without worker.host_cache_bytes (--host-cache)" if not settings.host_cache_bytes else ""
    if settings.deterministic:
        reason = "with worker.deterministic, because pages that come back would be rounded"
    elif settings.kv_dtype == "int4":
        reason = "with worker.kv_dtype int4, whose pages are as small"
    if reason:
        raise ConfigError(f"worker.host_cache_dtype: expected same {reason}, got {settings.host_cache_dtype}")
