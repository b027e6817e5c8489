"""What an operator asks of the placement, and the placement that is decided: replicas, ranks, their devices. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_workers.settings import DeviceKind, KvDtype, Quantization, WorkerSettings
from supervisor.placement.hardware import Gpu
from supervisor.placement.quantities import counted, gib_text


@dataclass(frozen=True)
class PlacementRequest:
    """What the operator asked for."""

    gpus: int | None = None  # None: all that are there; 0: CPU cores
    tp: int = 0  # 0: chosen here
    replicas: int = 0  # 0: chosen here
    max_length: int = 0  # tokens of one sequence; 0: the model's context length
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    standby: bool | None = None  # a second gang for each replica; None: chosen here
    pp: int = 1  # stages of each replica's pipeline, of tp ranks each


@dataclass(frozen=True)
class Placement:
    """Where the ranks run. Rank k of replica r runs on `gpus[r * ranks_each + k]`, or on CPU cores if there are no `gpus`."""

    device: DeviceKind
    gpus: tuple[Gpu, ...]
    tp: int
    replicas: int
    dtype: str  # "" for a model without arithmetic
    weight_bytes: int = 0  # on the fullest GPU; of all ranks together on CPU cores
    memory_bytes: int = 0  # of the smallest GPU; of the machine on CPU cores
    n_unused: int = 0  # GPUs that could be used and are not
    room_tokens: int = 0  # of keys and values on a replica, where that is less than the model's context
    context_tokens: int = 0  # the model's context length
    deterministic: bool = False  # see `WorkerSettings.deterministic`
    quantization: Quantization = "none"  # of the weights; see `WorkerSettings.quantization`
    quantization_reason: str = ""  # why, where nobody has asked for it
    kv_dtype: KvDtype = "auto"  # see `WorkerSettings.kv_dtype`
    has_standby: bool = False  # each replica has a second gang, on the same devices
    pp: int = 1  # stages of each replica's pipeline, of tp ranks each
    n_slots: int = 0  # sequences at once in a replica, where its memory has decided that; 0: the default of its device

    @property
    def ranks(self) -> int:
        """Worker processes of all replicas."""
        return self.ranks_each * self.replicas

    @property
    def ranks_each(self) -> int:
        """Ranks of one replica."""
        return self.tp * self.pp

    def quantization_of(self, worker: WorkerSettings) -> Quantization:
        """What the operator has asked for; where that depends on host and model, what was decided here."""
        return self.quantization if worker.quantization in ("auto", "exact") else worker.quantization

    def slots_of(self, worker: WorkerSettings) -> int:
        """Sequences at once in a replica: what the operator has asked for; else what was decided here, 0 if nothing was."""
        return worker.n_slots or self.n_slots

    def has_vault(self, asked: bool | None) -> bool:
        """True if KV memory outlives gangs. `asked`: what the operator chose; None: on GPUs. A standby gang always has a vault,
        because without one it would compute everything again."""
        return self.has_standby or (self.device == "cuda" if asked is None else asked)

    def summary(self) -> str:
        """The layout in a few words, for the status: "4 replicas x tp 1 on NVIDIA H200, bfloat16"."""
        where = " and ".join(dict.fromkeys(gpu.name for gpu in self.gpus)) or "CPU cores"
        layout = f"{self._layout()} on {where}"
        return ", ".join([layout, *self._numerics()])

    def _layout(self) -> str:
        """The ranks: "4 replicas x tp 1", "1 replica x tp 2 x pp 2"."""
        return f"{counted(self.replicas, 'replica')} x tp {self.tp}" + (f" x pp {self.pp}" if self.pp > 1 else "")

    def _numerics(self) -> list[str]:
        """What it computes with: ["float32", "int8 weights", "int8 keys and values", "deterministic"]; [] for a model without
        arithmetic, unless it is asked to be deterministic."""
        weights = [f"{self.quantization} weights"] if self.dtype and self.quantization != "none" else []
        kv = [f"{self.kv_dtype} keys and values"] if self.dtype and self.kv_dtype != "auto" else []
        return [*filter(None, [self.dtype]), *weights, *kv, *["deterministic"] * self.deterministic]

    def text(self) -> str:
        """The plan in one line."""
        where = counted(len(self.gpus), "GPU") if self.gpus else "CPU cores"
        parts = [f"{where}: {self._layout()}"]
        if self.dtype:
            weights = f"weights take {gib_text(self.weight_bytes)} of {gib_text(self.memory_bytes)} GiB"
            parts += [*self._numerics(), weights + (" on each GPU" if self.gpus else "")]
        if self.n_slots:
            parts.append(f"{self.n_slots:,} sequences at once")
        if self.quantization_reason:
            form = "as floats" if self.quantization == "none" else self.quantization
            parts.append(f"weights {form} ({self.quantization_reason})")
        if self.room_tokens:
            made_for = f"(the model was made for {self.context_tokens:,})"
            parts.append(f"memory for sequences of {self.room_tokens:,} tokens {made_for}")
        if self.has_standby:
            parts.append("a standby for each replica")
        if self.n_unused:
            parts.append(f"{counted(self.n_unused, 'GPU')} left over")
        return ", ".join(parts)
