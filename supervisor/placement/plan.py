"""Decides how many replicas of how many ranks run on which devices, before the first child is started. Pure.

A replica gets the least tensor-parallel size (tp) that divides the model and holds it: weights, working memory, and the keys
and values of one sequence of the longest length. It has as many stages (pp) as the operator sets, one by default. The remaining
GPUs become further replicas. Values that the operator sets are used as they are, or refused with the values that would work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from gpu_workers.layers.shard import can_split, is_even_split, split_sizes
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.runner.memory_budget import check_pages
from gpu_workers.runner.memory_estimate import RankEstimate, cpu_weight_bytes, estimate_cuda_rank, kv_token_bytes
from messages.errors import ConfigError
from messages.steps import PAGE_TOKENS
from supervisor.placement.cpu_room import CpuRoom
from supervisor.placement.gpu_room import GpuRoom
from supervisor.placement.hardware import Gpu, Host
from supervisor.placement.pinned_room import check_host_cache
from supervisor.placement.placement import Placement, PlacementRequest
from supervisor.placement.quantities import counted, dotted, gib_text
from supervisor.placement.refusal import EXPECTED_AT_MOST, PlacementRefused
from supervisor.placement.weight_form import choose_form

_LEAST_CAPABILITY = (7, 0)  # of the kernels' compiler
_BFLOAT16_CAPABILITY = (8, 0)
_RANK_BYTES = 16 << 20  # of memory on the host, at least, for a rank without weights
_SHORT_CONTEXT_TOKENS = 2048  # a model whose context does not fit is served with less, but not with less than this


def plan_placement(host: Host, model: ModelConfig | None, asked: PlacementRequest) -> Placement:
    """The placement of `model` (None: the hash chain, which needs no device) on `host`.

    Raises: ConfigError naming the key, what would work and what came.
    """
    check_gpus(host, asked)
    _check_stages(model, asked.pp)
    gpus = host.gpus if asked.gpus is None else host.gpus[: asked.gpus]
    is_on_cpu = not gpus or (model is None and asked.gpus is None)
    form = choose_form(host, model, asked.worker, is_on_cpu=is_on_cpu)
    worker = msgspec.structs.replace(asked.worker, quantization=form.quantization)
    asked = replace(asked, worker=worker)
    placement = _on_cpu(host, model, asked) if is_on_cpu else _OnGpus(gpus, model, asked).placement()
    check_host_cache(host.memory_bytes, placement, worker)
    return replace(
        placement,
        quantization=form.quantization,
        quantization_reason=form.reason,
        kv_dtype=worker.kv_dtype,
        deterministic=worker.deterministic,
    )


def check_gpus(host: Host, asked: PlacementRequest) -> None:
    """Check the number of GPUs, before the model is looked for. Raises: PlacementRefused if there are fewer than asked for."""
    if asked.gpus is not None and asked.gpus > len(host.gpus):
        there = _named(host.gpus)
        if not there:
            raise PlacementRefused("gpus", [0], "CPU cores; no GPU is visible here", asked.gpus)
        raise PlacementRefused("gpus", [len(host.gpus)], there, asked.gpus, EXPECTED_AT_MOST)


def _check_stages(model: ModelConfig | None, pp: int) -> None:
    """Check that each stage gets a layer. Raises: PlacementRefused."""
    if model is not None and pp > model.n_layers:
        raise PlacementRefused("pp", [model.n_layers], "the layers of the model", pp, EXPECTED_AT_MOST)


def _on_cpu(host: Host, model: ModelConfig | None, asked: PlacementRequest) -> Placement:
    if asked.worker.attention == "triton":
        raise ConfigError('worker.attention: expected "auto" or "torch" without GPUs, got "triton"')
    tp, pp, replicas = asked.tp or 1, asked.pp, asked.replicas or 1
    if model is None:
        _check_processes(host, tp, pp, replicas)
        return Placement("cpu", (), tp, replicas, "", has_standby=bool(asked.standby), pp=pp)
    _check_split(model, tp)
    dtype = "float32" if asked.worker.dtype == "auto" else asked.worker.dtype
    _check_kv_memory(model, asked, tp, dtype)
    replica_bytes = cpu_weight_bytes(model, tp, dtype, asked.worker.quantization_name, pp)
    weight_bytes, most_replicas = replica_bytes * replicas, host.memory_bytes // replica_bytes
    if 1 <= most_replicas < replicas:
        room = f"{gib_text(replica_bytes)} GiB of weights each, {gib_text(host.memory_bytes)} GiB of memory"
        raise PlacementRefused("replicas", [most_replicas], room, replicas, EXPECTED_AT_MOST)
    if weight_bytes > host.memory_bytes:
        smaller = "; --dtype bfloat16 halves them" if dtype == "float32" and asked.worker.quantization_name == "none" else ""
        raise ConfigError(
            f"model: expected weights that fit into the memory of this host, {gib_text(host.memory_bytes)} GiB, got"
            f" {gib_text(weight_bytes)} GiB ({counted(replicas, 'replica')}, {dtype}{smaller})"
        )
    has_standby = CpuRoom(host.memory_bytes, asked.worker).has_standby(asked.standby, weight_bytes, tp * pp * replicas)
    return Placement("cpu", (), tp, replicas, dtype, weight_bytes, host.memory_bytes, has_standby=has_standby, pp=pp)


def _check_kv_memory(model: ModelConfig, asked: PlacementRequest, tp: int, dtype: str) -> None:
    """Check that the memory for keys and values that was asked for holds a short sequence. Raises: ConfigError."""
    worker = asked.worker
    if worker.kv_memory_bytes:
        page_bytes = PAGE_TOKENS * kv_token_bytes(model, tp, dtype, worker.kv_dtype, asked.pp)
        check_pages(worker.kv_memory_bytes, page_bytes, worker.slots, asked.max_length or model.max_position)


def _check_processes(host: Host, tp: int, pp: int, replicas: int) -> None:
    """Check that the memory of the host has room for so many ranks of the hash chain. Raises: PlacementRefused."""
    most = max(host.memory_bytes // _RANK_BYTES, 1)
    for key, got, others in (("tp", tp, 1), ("pp", pp, tp), ("replicas", replicas, tp * pp)):
        if got * others > most:
            raise PlacementRefused(key, [most // others], f"{gib_text(host.memory_bytes)} GiB of memory", got, EXPECTED_AT_MOST)


class _OnGpus:
    """One decision over `gpus`. Any of them may be used."""

    def __init__(self, gpus: tuple[Gpu, ...], model: ModelConfig | None, asked: PlacementRequest) -> None:
        self._gpus, self._model, self._asked, self._pp = gpus, model, asked, asked.pp
        self._worker = msgspec.structs.replace(asked.worker, device="cuda")
        self._dtype = _gpu_dtype(gpus, asked.worker.dtype)
        self._memory_bytes = min(gpu.memory_bytes for gpu in gpus)
        self._room = GpuRoom(self._memory_bytes, self._worker)

    def placement(self) -> Placement:
        """The placement that fits what was asked.

        Raises: ConfigError naming the key; PlacementRefused where a number is refused.
        """
        n_gpus, replicas = len(self._gpus), self._asked.replicas
        if replicas > n_gpus:
            text = "expected at most {offers} (the number of GPUs), got {got}"
            raise PlacementRefused("replicas", [n_gpus], counted(n_gpus, "GPU"), replicas, text)
        if self._pp * max(replicas, 1) > n_gpus:
            most, shared = n_gpus // max(replicas, 1), f" for {replicas} replicas" if replicas > 1 else ""
            raise PlacementRefused("pp", [most], f"{counted(n_gpus, 'GPU')}{shared}", self._pp, EXPECTED_AT_MOST)
        if self._model is None:
            tp = self._asked.tp or 1
            self._check_number(tp)
            return self._placed(tp)
        _check_kv_memory(self._model, self._asked, self._most_ranks(self._model), self._dtype)
        tp = self._checked_tp(self._model) if self._asked.tp else self._best_tp(self._model)
        estimate = self._estimate(self._model, tp)
        self._room.check_kv_memory(estimate)
        wanted_tokens = self._wanted_tokens()
        has_standby = self._room.has_standby(self._asked.standby, estimate, wanted_tokens, self._least_tokens())
        n_slots = self._slots(self._model, tp, 1 + has_standby)
        room_tokens = self._room.tokens(self._estimate(self._model, tp, n_slots), 1 + has_standby)
        return replace(
            self._placed(tp),
            dtype=self._dtype,
            weight_bytes=estimate.weight_bytes,
            room_tokens=room_tokens if room_tokens < wanted_tokens else 0,
            context_tokens=self._model.max_position,
            has_standby=has_standby,
            n_slots=n_slots,
        )

    def _slots(self, model: ModelConfig, tp: int, n_gangs: int) -> int:
        """Sequences at once in a replica; 0: nothing is decided here. Deterministic kernels and gangs of several ranks have not
        been measured with more than the default."""
        if self._worker.n_slots or self._worker.deterministic or tp * self._pp > 1:
            return 0
        return self._room.slots(
            lambda n_slots: self._estimate(model, tp, n_slots),
            n_gangs,
            self._wanted_tokens(),
            has_urgent_steps=self._worker.beside_tokens(model.layer_parameters) > 0,
        )

    def _placed(self, tp: int) -> Placement:
        n_each, n_gpus = tp * self._pp, len(self._gpus)
        replicas = self._asked.replicas or n_gpus // n_each
        used, n_unused = self._gpus[: n_each * replicas], n_gpus - n_each * replicas
        has_standby = bool(self._asked.standby)
        return Placement("cuda", used, tp, replicas, "", 0, self._memory_bytes, n_unused, has_standby=has_standby, pp=self._pp)

    def _checked_tp(self, model: ModelConfig) -> int:
        """The operator's own tp, if it is possible. Raises: ConfigError."""
        tp = self._asked.tp
        _check_split(model, tp, len(self._gpus))
        self._check_number(tp)
        self._check_room(model, [tp])
        return tp

    def _most_ranks(self, model: ModelConfig) -> int:
        """The greatest tp that is possible; 1 if none is."""
        asked = self._asked.tp
        sizes = [asked] if asked else range(len(self._gpus), 0, -1)
        return next((size for size in sizes if can_split(model, size)), 1)

    def _check_number(self, tp: int) -> None:
        n_gpus, replicas = len(self._gpus), self._asked.replicas or 1
        if tp * self._pp * replicas > n_gpus:
            shared = (f" for {replicas} replicas" if replicas > 1 else "") + (f" of pp {self._pp}" if self._pp > 1 else "")
            most = n_gpus // replicas // self._pp
            raise PlacementRefused("tp", [most], f"{counted(n_gpus, 'GPU')}{shared}", tp, EXPECTED_AT_MOST)

    def _best_tp(self, model: ModelConfig) -> int:
        """The least tp that holds the model; if both `replicas` and `gpus` are given, the greatest, so that all GPUs are used.
        Sizes that give every rank the same number of heads go first."""
        most = len(self._gpus) // (self._asked.replicas or 1) // self._pp
        sizes = [size for size in range(1, most + 1) if can_split(model, size)]
        fills = self._asked.replicas > 0 and self._asked.gpus is not None
        sizes.sort(key=lambda size: (not is_even_split(model, size), -size if fills else size))
        holding = [size for size in sizes if self._room.tokens(self._estimate(model, size)) >= self._wanted_tokens()]
        return holding[0] if holding else self._check_room(model, sizes)

    def _check_room(self, model: ModelConfig, sizes: Sequence[int]) -> int:
        """The size with the most room. Raises: ConfigError when it has less room than is needed."""
        room_by_size = {size: self._room.tokens(self._estimate(model, size)) for size in sizes}
        size = max(sizes, key=lambda one: room_by_size[one])
        if room_by_size[size] < self._least_tokens():
            raise self._no_room(model, size, room_by_size[size])
        return size

    def _no_room(self, model: ModelConfig, size: int, room_tokens: int) -> ConfigError:
        """The error: why `size` ranks are not enough, and how many would be."""
        weights = f"{gib_text(self._estimate(model, size).weight_bytes)} GiB of weights a GPU in {self._dtype}"
        gpu_gib = f"{gib_text(self._memory_bytes)} GiB"
        if self._asked.max_length and room_tokens > 0:
            beside = f"beside {weights} (tp {size}, {gpu_gib} a GPU)"
            return ConfigError(f"max_length: expected at most {room_tokens} tokens {beside}, got {self._asked.max_length}")
        enough = (s for s in split_sizes(model) if self._room.tokens(self._estimate(model, s)) >= self._least_tokens())
        needed = next(enough, None)
        if needed is None:
            return ConfigError(f"model: expected one that fits GPUs of {gpu_gib}, got {weights} with tp {size}")
        key = "tp" if self._asked.tp else "gpus"
        total = needed if self._asked.tp else needed * self._pp * max(self._asked.replicas, 1)
        got = self._asked.tp or len(self._gpus)
        text = f"expected at least {{offers}} of {gpu_gib} each for this model, got {{got}} ({{why}})"
        return PlacementRefused(key, [total], weights, got, text)

    def _estimate(self, model: ModelConfig, tp: int, n_slots: int = 0) -> RankEstimate:
        worker, n_slots = self._worker, n_slots or self._worker.slots
        return estimate_cuda_rank(
            model, tp, self._dtype, worker.step_tokens, n_slots, worker.quantization_name, worker.kv_dtype, self._pp
        )

    def _wanted_tokens(self) -> int:
        """Tokens of one sequence of the longest length."""
        context = self._model.max_position if self._model else 0
        return min(self._asked.max_length or context, context)

    def _least_tokens(self) -> int:
        """The least room in tokens with which a start makes sense: the length that was asked for, or a short context."""
        return self._wanted_tokens() if self._asked.max_length else min(self._wanted_tokens(), _SHORT_CONTEXT_TOKENS)


def _gpu_dtype(gpus: Sequence[Gpu], wanted: str) -> str:
    """The dtype that all of `gpus` compute with."""
    for gpu in gpus:
        if gpu.capability < _LEAST_CAPABILITY:
            raise ConfigError(
                f"gpus: expected devices of compute capability {dotted(_LEAST_CAPABILITY)} or more, got {gpu.name} with"
                f" {dotted(gpu.capability)}; CUDA_VISIBLE_DEVICES can leave it out"
            )
    oldest = min(gpus, key=lambda gpu: gpu.capability)
    has_bfloat16 = oldest.capability >= _BFLOAT16_CAPABILITY
    if wanted == "auto":
        return "bfloat16" if has_bfloat16 else "float16"
    if wanted == "bfloat16" and not has_bfloat16:
        raise ConfigError(
            f"worker.dtype: expected float16 or float32 on {oldest.name} (compute capability {dotted(oldest.capability)}),"
            " got bfloat16"
        )
    return wanted


def _check_split(model: ModelConfig, tp: int, most: int | None = None) -> None:
    """Check that the model can be split over `tp` ranks. `most`: the most ranks that the error offers; None: no limit.

    Raises: PlacementRefused.
    """
    if can_split(model, tp):
        return
    sizes = [size for size in split_sizes(model) if most is None or size <= most]
    heads = f"the model has {counted(model.n_kv_heads, 'KV head')} and {counted(model.n_heads, 'head')}"
    raise PlacementRefused("tp", sizes, heads, tp)


def _named(gpus: Sequence[Gpu]) -> str:
    """The devices by name: "2 x NVIDIA H200"."""
    names = [gpu.name for gpu in gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
