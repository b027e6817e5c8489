"""The tree of processes in start order. Begin reading this package here.

    custodian          before all others: holds HTTP connections and the listening socket; gateways give them to the next one.
    accounts           where clients show API keys: they count what tenants use. Gateways wait for them, then decide alone.
    gpu_monitor        where the model runs on GPUs: reads their sensors. Without it there are no metrics of them, nothing else.
    cache_directory    next, so that the first prefixes are recorded. Without it there are fewer cache hits, nothing else.
    speculation        before the schedulers, which use it. Without it there are fewer drafts, nothing else.
    vault r            where it is turned on: before its gang, whose KV memory it keeps.
    gang r             the ranks of replica r, one process each. When one dies, all are killed: the others wait for it for ever.
    standby gang r     where it is turned on: a second process for each rank, in the other seat, started when all else serves.
    scheduler r        after its gang. Its death loses no request: gateways submit again, and the new scheduler resets the gang.
    fallback           where there is a fallback model: its gang and its scheduler, as replica 1000.
    embedder           where there is an embedding model: before the gateways, which send texts again when it has died.
    gateway i          last, so that no request is accepted before it can be computed. A new gateway reads the journal of the
                       dead one and goes on. The supervisor holds the listening socket, where connections wait meanwhile.

At the start all processes are spawned at once; each is told when another one becomes ready. They stop in reverse order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from actors.accounts.settings import AccountsSettings
from actors.gateway.settings import OtherModel
from messages.access.audit_log import AUDIT_FILE
from messages.access.curve_keys import CURVE_KEY_FILE
from messages.access.key_file import KEY_FILE
from messages.access.tenant_file import TENANT_FILE
from messages.ids import FIRST_SEAT, STANDBY_SEAT, actor_name, role_of
from messages.lifecycle.spawn_spec import CUSTODIAN_SOCKET, LISTEN_SOCKET
from messages.run_dir import custodian_socket, http_socket, zeromq_endpoint
from supervisor.children.entrypoint import warm_ups
from supervisor.config.observability_settings import traces_of
from supervisor.config.server_config import ServerConfig
from supervisor.fallback.only_model import FALLBACK_REPLICA, as_fallback, config_of, facts_of
from supervisor.model_facts.gateway_models import embedding_of, numerics_of, sampling_of
from supervisor.placement.placement import Placement
from supervisor.policy.child_spec import Budget, ChildSpec, Deadlines, Group, Strategy, Unit
from supervisor.start_facts import EmbeddingFacts, StartFacts

_GPU_ENV = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # CUDA numbers devices as NVML and nvidia-smi do
    "NCCL_SOCKET_IFNAME": "lo",  # ranks of one host meet over sockets: on no interface that others reach
    "NCCL_RAS_ENABLE": "0",  # it would listen on a port and answer everybody
    "NCCL_NVLS_ENABLE": "0",  # multicast needs a fabric manager that few hosts run; without one it hangs at the start
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1",  # each rank sees its own device alone, as number 0
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # only the supervisor ends a gang, never a watchdog thread in a rank
}
_PATIENCE_S = 600.0  # what the only gateway fails at (a journal's disk, descriptors) may come back
_HOLDERS = ("custodian", "vault")  # what they hold for others is lost if those die at the same time
_BEATS_TO_CONTINUE = 2  # after the silence of so many beats a holder that is stopped from outside is told to continue
_DEFAULT_LENGTH_TOKENS = 8192  # of a model without a known context
_PROMPT_STEP_S = {"cuda": 0.03, "cpu": 0.0}  # `scheduler.step_s` by device, if it is not set: docs/performance_gpus.md
_CPU_PAUSE_S = 0.3  # the most of `supervisor.standby_pause_s` on CPU cores: enough for the first steps of a takeover
_GANG_WHY = "runs the model; when one rank dies, all of them are restarted"


class NoSettings(msgspec.Struct, frozen=True):
    """The section of an actor that has nothing to set."""


def build_tree(config: ServerConfig, facts: StartFacts) -> tuple[Group, ...]:
    """The groups in start order."""
    groups = [_custodian(config, facts)] if config.holds_connections else []
    groups += [_accounts(config, facts)] if config.api_keys else []
    groups += _gpu_monitor(config, facts)
    groups.append(_directory(config, facts))
    groups += [_speculation(config)] if config.speculate else []
    replicas = range(facts.placement.replicas)
    if facts.placement.has_vault(config.asks_vault):
        groups += [_vault(config, replica) for replica in replicas]
    groups += [_gang(config, facts, replica) for replica in replicas]
    if facts.placement.has_standby:
        groups += [_gang(config, facts, replica, STANDBY_SEAT) for replica in replicas]
    groups += [_scheduler(config, facts, replica) for replica in replicas]
    if facts.fallback is not None:
        own = config_of(config), facts_of(facts, facts.fallback), FALLBACK_REPLICA
        groups += [as_fallback(_gang(*own)), as_fallback(_scheduler(*own))]
    if facts.embedding is not None:
        groups.append(_embedder(config, facts, facts.embedding))
    groups += [_gateway(config, facts, index) for index in range(config.gateways)]
    return tuple(groups)


def _custodian(config: ServerConfig, facts: StartFacts) -> Group:
    settings = msgspec.structs.replace(config.custodian, socket_path=custodian_socket(facts.run_dir))
    why = "holds the connections of HTTP clients; after its death gateways give them to the next one"
    shared = {} if facts.custodian_fd < 0 else {CUSTODIAN_SOCKET: facts.custodian_fd}
    group = _single(config, actor_name("custodian", 0), why, settings, {LISTEN_SOCKET: facts.listen_fd, **shared})
    return replace(group, patience_s=_PATIENCE_S)


def _accounts(config: ServerConfig, facts: StartFacts) -> Group:
    folder = facts.state_dir
    settings = AccountsSettings(
        tenants=config.tenants, tenants_file=str(folder / TENANT_FILE), accounts_file=str(folder / "accounts")
    )
    why = "counts what tenants use; after its death gateways tell it again what it has not written down"
    return replace(_single(config, actor_name("accounts", 0), why, settings), is_optional=True)


def _gpu_monitor(config: ServerConfig, facts: StartFacts) -> list[Group]:
    settings, used = config.gpu_monitor, [gpu.device_id for gpu in facts.placement.gpus]
    settings = msgspec.structs.replace(settings, devices=settings.devices or used)
    group = _single(config, actor_name("gpu_monitor", 0), "reads the sensors of GPUs for metrics, and nothing else", settings)
    return [replace(group, is_optional=True)] if settings.enabled and settings.devices else []


def _directory(config: ServerConfig, facts: StartFacts) -> Group:
    why = "finds cached prefixes; without it every prefix is computed again"
    cache, ttl_s, file = config.gateway.answer_cache, config.gateway.answer_cache_ttl_s, str(facts.state_dir / "kept-answers")
    keeps = {"keeps_answers": cache != "off", "keeps_similar": cache == "semantic", "answer_ttl_s": ttl_s}
    settings = msgspec.structs.replace(config.cache_directory, answers_file=file, **keeps)
    return replace(_single(config, actor_name("cache_directory", 0), why, settings), is_optional=True)


def _speculation(config: ServerConfig) -> Group:
    why = "proposes drafts; without it every step gives one token of each sequence"
    return replace(_single(config, actor_name("speculation", 0), why, config.speculation), is_optional=True)


def _scheduler(config: ServerConfig, facts: StartFacts, replica: int) -> Group:
    given_s, device_s = config.scheduler.step_s, _PROMPT_STEP_S[facts.placement.device]
    settings = msgspec.structs.replace(
        config.scheduler,
        tp=facts.placement.ranks_each,
        pp=facts.placement.pp,
        speculation=config.speculate,
        vault=facts.placement.has_vault(config.asks_vault),
        tells_directory=facts.placement.replicas > 1,
        follows_load=config.worker.kv_least_bytes > 0,
        host_follows_load=config.worker.host_cache_least_bytes > 0,
        step_s=device_s if given_s is None else given_s,
    )
    why = "plans the steps of its gang; after its death gateways submit again"
    return replace(_single(config, actor_name("scheduler", replica), why, settings), unit=Unit("replica", replica))


def _embedder(config: ServerConfig, facts: StartFacts, model: EmbeddingFacts) -> Group:
    s, why = config.supervisor, "computes embeddings; after its death gateways send their texts again"
    settings = msgspec.structs.replace(config.embedder, model_folder=model.folder, model_digests=model.digests)
    group = _single(config, actor_name("embedder", 0), why, settings, warm_up=("gpu_workers.embedding.encoder",))
    step_s = s.cpu_step_s if settings.device == "cpu" else s.step_s
    frozen_s = max(s.frozen_s, s.frozen_worker_s)
    deadlines = Deadlines(s.hello_s, s.worker_ready_s, frozen_s, step_s, max(s.first_step_s, step_s), s.stop_s, s.suspended_s)
    env = _cpu_env(settings.threads or facts.cores) if settings.device == "cpu" else {}
    return replace(group, children=(replace(group.children[0], deadlines=deadlines, env=env),), is_optional=True)


def _gateway(config: ServerConfig, facts: StartFacts, index: int) -> Group:
    tcp = zeromq_tcp_of(config, index)
    settings = msgspec.structs.replace(
        config.gateway,
        model_name=config.model_name or facts.model_name,
        model_folder=facts.model_setting,
        model_digests=facts.model_digests,
        default_sampling=sampling_of(config),
        max_length=_length(config, facts) or _DEFAULT_LENGTH_TOKENS,
        numerics=numerics_of(config, facts.placement),
        deterministic=config.worker.deterministic,
        device=facts.placement.device,
        embedding_device=config.embedder.device,
        zeromq_endpoint=zeromq_endpoint(facts.run_dir, index),
        zeromq_tcp_endpoint=tcp,
        zeromq_key_file=str(facts.state_dir / CURVE_KEY_FILE) if tcp and config.has_curve else "",
        audit_file=str(facts.state_dir / AUDIT_FILE) if config.audit_log else "",
        traces=traces_of(config.observability, os.environ, facts.run_dir),
        http_sockets=[str(http_socket(facts.run_dir, i)) for i in range(config.gateways)] if config.gateways > 1 else [],
        journal_path=str(facts.state_dir / f"journal-{index}"),
        keys_file=str(facts.state_dir / KEY_FILE) if config.api_keys else "",
        tenants=config.tenants if config.api_keys else {},
        tenants_file=str(facts.state_dir / TENANT_FILE) if config.api_keys else "",
        gateways=config.gateways,
        names_holders=_exchange_bytes(config, facts.placement) > 0,
        schedulers=facts.placement.replicas,
        **embedding_of(facts),
        other_models=_other_models(config, facts),
        have_gateways_changed=facts.have_gateways_changed,
        custodian_socket=custodian_socket(facts.run_dir) if config.holds_connections else "",
    )
    why = "accepts requests and owns them; its successor reads the journal and goes on"
    # a spare gateway loads the tokenizer in advance: a large vocabulary takes half a second, and digests of weights tens of ms
    folders = (facts.model_setting, *(other.folder for other in settings.other_models))
    texts = [f"actors.gateway.text.models.served_text:load_text_model={folder}" for folder in folders]
    warm_up = (*texts, *(f"actors.gateway.models.model_identity:known_identity={folder}" for folder in folders))
    group = _single(config, actor_name("gateway", index), why, settings, {LISTEN_SOCKET: facts.listen_fd}, warm_up)
    return replace(group, unit=Unit("gateway", index), patience_s=_PATIENCE_S)


def zeromq_tcp_of(config: ServerConfig, index: int) -> str:
    """Where a gateway listens for ZeroMQ clients over TCP; "" if it does not."""
    host = f"[{config.zeromq_host}]" if ":" in config.zeromq_host else config.zeromq_host
    return f"tcp://{host}:{config.zeromq_port + index}" if config.zeromq_port else ""


def _other_models(config: ServerConfig, facts: StartFacts) -> list[OtherModel]:
    """What gateways must know of the fallback model."""
    if (model := facts.fallback) is None:
        return []
    own, alone = config_of(config), facts_of(facts, model)
    length = _length(own, alone) or _DEFAULT_LENGTH_TOKENS
    known = {"name": model.name, "folder": model.folder, "digests": model.digests, "max_length": length}
    return [OtherModel(**known, numerics=numerics_of(own, alone.placement))]


def _single(
    config: ServerConfig,
    name: str,
    why: str,
    settings: msgspec.Struct,
    descriptors: Mapping[str, int] | None = None,
    warm_up: tuple[str, ...] = (),
) -> Group:
    """An actor that restarts alone."""
    s = config.supervisor
    continue_s = min(_BEATS_TO_CONTINUE * s.beat_s, s.suspended_s) if role_of(name) in _HOLDERS else 0.0
    deadlines = Deadlines(s.hello_s, s.ready_s, s.frozen_s, s.step_s, s.first_step_s, s.stop_s, s.suspended_s, continue_s)
    warm_up = (*warm_ups(name), *warm_up)
    child = ChildSpec(name, msgspec.json.encode(settings), deadlines, descriptors=descriptors or {}, warm_ups=warm_up)
    budget = Budget(s.actor_restarts, s.actor_window_s, s.start_attempts, s.restart_attempts)
    return Group(name, why, Strategy.ONE_FOR_ONE, budget, (child,))


def _gang(config: ServerConfig, facts: StartFacts, replica: int, seat: str = FIRST_SEAT) -> Group:
    s, is_standby = config.supervisor, seat != FIRST_SEAT
    why = "has the model loaded and waits; takes over when the active gang dies" if is_standby else _GANG_WHY
    return Group(
        f"standby gang {replica}" if is_standby else f"gang {replica}",
        why,
        Strategy.ONE_FOR_ALL,
        Budget(s.gang_restarts, s.gang_window_s, s.start_attempts, s.restart_attempts),
        tuple(_rank(config, facts, replica, rank, seat) for rank in range(facts.placement.ranks_each)),
        has_rendezvous=True,
        unit=Unit("replica", replica),
        standby_of=f"gang {replica}" if is_standby else "",
        standby_pause_s=s.standby_pause_s if facts.placement.device == "cuda" else min(s.standby_pause_s, _CPU_PAUSE_S),
    )


def _vault(config: ServerConfig, replica: int) -> Group:
    why = "keeps the KV memory of its gang; without it a killed gang computes everything again"
    return replace(_single(config, actor_name("vault", replica), why, NoSettings()), is_optional=True)


def _rank(config: ServerConfig, facts: StartFacts, replica: int, rank: int, seat: str) -> ChildSpec:
    s, placement = config.supervisor, facts.placement
    if placement.device == "cuda":
        env = {"CUDA_VISIBLE_DEVICES": placement.gpus[replica * placement.ranks_each + rank].device_id, **_GPU_ENV}
        step_s, first_step_s = s.step_s, max(s.first_step_s, s.step_s)
    else:
        env = _cpu_env(config.worker.threads or max(facts.cores // placement.ranks, 1))
        step_s = first_step_s = s.cpu_step_s
    settings = msgspec.structs.replace(
        config.worker,
        model_folder=facts.model_setting,
        model_digests=facts.model_digests,
        dtype=placement.dtype or config.worker.dtype,
        quantization=placement.quantization_of(config.worker),
        device=placement.device,
        rank=rank,
        tp=placement.tp,
        pp=placement.pp,
        n_slots=placement.slots_of(config.worker),
        cpu_ranks=placement.ranks,
        max_length=_length(config, facts),
        vault=facts.placement.has_vault(config.asks_vault),
        standby=placement.has_standby,
        exchange_bytes=_exchange_bytes(config, placement),
        disk_cache_dir=config.worker.disk_cache_dir or str(facts.state_dir / "pages"),
    )
    frozen_s = max(s.frozen_s, s.frozen_worker_s)
    deadlines = Deadlines(s.hello_s, s.worker_ready_s, frozen_s, step_s, first_step_s, s.stop_s, s.suspended_s)
    name = actor_name("worker", replica, rank, seat)
    engine = () if settings.is_hash_chain else (f"gpu_workers.process.engine_loading:import_engine={settings.device}",)
    return ChildSpec(name, msgspec.json.encode(settings), deadlines, env, warm_ups=(*warm_ups(name), *engine))


def _exchange_bytes(config: ServerConfig, placement: Placement) -> int:
    """The size of a rank's places that other replicas can read; 0 if there are none, or nothing can give them these places."""
    return config.worker.exchange_bytes if placement.replicas > 1 and placement.has_vault(config.asks_vault) else 0


def _cpu_env(threads: int) -> dict[str, str]:
    """The environment of a CPU rank. OpenMP's threads spin for some microseconds between two operators and then sleep. With
    immediate sleep they would wake too late for the next operator, and a step of one stream would take half as long again.
    With milliseconds of spinning they would take the cores from the other actors."""
    return {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "10000", "CUDA_VISIBLE_DEVICES": ""}


def _length(config: ServerConfig, facts: StartFacts) -> int:
    """Tokens of one sequence: the smaller of the operator's limit and the model's context length; 0 if neither is known."""
    return min((n for n in (config.max_length, facts.model_length) if n), default=0)
