"""Our tree as data: order, devices, settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.gateway.settings import GatewaySettings
from actors.gpu_monitor.settings import GpuMonitorSettings
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.embedding.settings import EmbedderSettings
from gpu_workers.settings import WorkerSettings, read_settings
from messages.lifecycle.spawn_spec import CUSTODIAN_SOCKET, LISTEN_SOCKET
from supervisor.config.server_config import ServerConfig
from supervisor.placement.hardware import Gpu
from supervisor.placement.host import n_children
from supervisor.placement.placement import Placement
from supervisor.policy.child_spec import Group, Strategy, Unit
from supervisor.start_facts import EmbeddingFacts, FallbackFacts, StartFacts
from supervisor.tree import build_tree


def on_cpu(tp: int = 1, replicas: int = 1, has_standby: bool = False) -> Placement:
    """Ranks on CPU cores."""
    return Placement("cpu", (), tp, replicas, "float32", has_standby=has_standby)


def on_gpus(tp: int = 1, replicas: int = 1, pp: int = 1) -> Placement:
    """Ranks on devices 4, 5, ..."""
    gpus = tuple(Gpu(str(4 + index), "some GPU", 1 << 30, (9, 0)) for index in range(tp * pp * replicas))
    return Placement("cuda", gpus, tp, replicas, "bfloat16", pp=pp)


def tree_of(config: ServerConfig, placement: Placement | None = None, model_length: int = 4096) -> tuple[Group, ...]:
    """The tree on a host with eight cores."""
    facts = StartFacts(Path("/s"), Path("/r"), 9, "/models/m", "m", model_length, placement or on_cpu(), 8)
    return build_tree(config, facts)


def workers(groups: tuple[Group, ...]) -> dict[str, tuple[WorkerSettings, dict[str, str]]]:
    """Settings and environment of each rank."""
    return {
        child.name: (read_settings(child.settings), dict(child.env))
        for group in groups
        for child in group.children
        if child.name.startswith("worker")
    }


def settings_of(groups: tuple[Group, ...], name: str) -> dict:
    """The settings of one child."""
    return msgspec.json.decode(next(c.settings for g in groups for c in g.children if c.name == name))


def test_files_of_the_disk_tier_are_in_the_state_directory_unless_said_otherwise() -> None:
    facts = StartFacts(Path("/s"), Path("/r"), 9, "/m", "m", 4096, on_cpu(), 8)
    for asked, found in (("", "/s/pages"), ("/other", "/other")):
        config = ServerConfig(worker=WorkerSettings(disk_cache_dir=asked))
        assert settings_of(build_tree(config, facts), "worker/0.0")["disk_cache_dir"] == found


def test_gateways_are_told_that_their_number_has_changed() -> None:
    facts = StartFacts(Path("/s"), Path("/r"), 9, "/m", "m", 4096, on_cpu(), 8, have_gateways_changed=True)
    assert settings_of(build_tree(ServerConfig(gateways=2), facts), "gateway/1")["have_gateways_changed"]


def test_custodians_inherit_the_socket_at_which_all_of_them_listen() -> None:
    facts = StartFacts(Path("/s"), Path("/r"), 9, "/m", "m", 4096, on_cpu(), 8, custodian_fd=11)
    assert build_tree(ServerConfig(), facts)[0].children[0].descriptors == {LISTEN_SOCKET: 9, CUSTODIAN_SOCKET: 11}
    own = StartFacts(Path("/s"), Path("/r"), 9, "/m", "m", 4096, on_cpu(), 8)
    assert build_tree(ServerConfig(), own)[0].children[0].descriptors == {LISTEN_SOCKET: 9}, "of an earlier release"


def test_the_embedder_comes_before_the_gateways_that_ask_it() -> None:
    model = EmbeddingFacts("minilm", "/models/minilm", 256, 384)
    groups = build_tree(ServerConfig(), StartFacts(Path("/s"), Path("/r"), 9, "/m", "m", 4096, on_cpu(), 8, embedding=model))
    assert [group.title for group in groups][-2:] == ["embedder/0", "gateway/0"]
    assert groups[-2].is_optional
    assert groups[-2].children[0].env["OMP_NUM_THREADS"] == "8"
    assert settings_of(groups, "embedder/0")["model_folder"] == "/models/minilm"
    told = settings_of(groups, "gateway/0")
    assert (told["embedding_model"], told["embedding_length"], told["embedding_dimensions"]) == ("minilm", 256, 384)
    assert not any(group.title == "embedder/0" for group in tree_of(ServerConfig()))
    facts = StartFacts(Path("/s"), Path("/r"), 9, "/m", "m", 4096, on_cpu(), 8, embedding=model)
    assert StartFacts.from_builtins(facts.to_builtins()) == facts


def test_one_process_reads_the_gpus_that_the_server_uses() -> None:
    def read_by(config: ServerConfig, placement: Placement) -> list[str] | None:
        groups = tree_of(config, placement)
        monitors = [group for group in groups if group.title == "gpu_monitor/0"]
        assert all(group.is_optional for group in monitors)
        return settings_of(groups, "gpu_monitor/0")["devices"] if monitors else None

    gpus = on_gpus(replicas=2)
    assert read_by(ServerConfig(), gpus) == [gpu.device_id for gpu in gpus.gpus]
    assert read_by(ServerConfig(gpu_monitor=GpuMonitorSettings(enabled=False)), gpus) is None
    assert read_by(ServerConfig(), on_cpu()) is None
    assert read_by(ServerConfig(gpu_monitor=GpuMonitorSettings(devices=["3"])), on_cpu()) == ["3"]


def test_the_fallback_model_has_a_gang_and_a_scheduler_of_its_own_and_nothing_of_the_main_model() -> None:
    model = FallbackFacts("small", "/models/small", 2048, "float32")
    main = StartFacts(Path("/s"), Path("/r"), 9, "/m", "m", 4096, on_gpus(replicas=2), 8)
    facts = replace(main, fallback=model)
    worker = WorkerSettings(quantization="fp8", kv_dtype="fp8", host_cache_bytes=1 << 30, deterministic=True)
    groups = build_tree(ServerConfig(worker=worker, max_length=1000), facts)
    own = {group.title: group for group in groups if group.unit == Unit("fallback", 0)}
    assert list(own) == ["gang 1000", "scheduler/1000"]
    assert all(group.is_optional for group in own.values())
    rank, scheduler = settings_of(groups, "worker/1000.0"), settings_of(groups, "scheduler/1000")
    assert (rank["model_folder"], rank["device"], rank["dtype"], rank["max_length"]) == (
        "/models/small",
        "cpu",
        "float32",
        2048,
    )
    assert (rank["quantization"], rank["kv_dtype"], rank["host_cache_bytes"]) == ("none", "auto", 0)
    assert not any(rank[key] for key in ("vault", "standby", "exchange_bytes"))
    assert rank["deterministic"]
    assert not any(scheduler[key] for key in ("vault", "speculation", "tells_directory"))
    (told,) = settings_of(groups, "gateway/0")["other_models"]
    assert (told["name"], told["folder"], told["max_length"]) == ("small", "/models/small", 2048)
    others = [group for group in groups if group.title not in own and group.title != "gateway/0"]
    assert others == list(build_tree(ServerConfig(worker=worker, max_length=1000), main))[:-1]
    assert StartFacts.from_builtins(facts.to_builtins()) == facts


@pytest.mark.parametrize(
    ("answer_cache", "keeps"), [("semantic", (True, True)), ("exact", (True, False)), ("off", (False, False))]
)
def test_the_directory_knows_whether_it_keeps_answers_and_where(answer_cache: Any, keeps: tuple[bool, bool]) -> None:
    gateway = GatewaySettings(answer_cache=answer_cache, answer_cache_ttl_s=60.0)
    told = settings_of(tree_of(ServerConfig(gateway=gateway)), "cache_directory/0")
    assert (told["keeps_answers"], told["keeps_similar"]) == keeps
    assert (told["answer_ttl_s"], Path(told["answers_file"]).name) == (60.0, "kept-answers")


def test_start_order_is_reverse_of_responsibility() -> None:
    names = [child.name for group in tree_of(ServerConfig(gateways=2), on_cpu(tp=2, replicas=2)) for child in group.children]
    gangs = ["worker/0.0", "worker/0.1", "worker/1.0", "worker/1.1"]
    before, after = (
        ["custodian/0", "cache_directory/0", "speculation/0"],
        ["scheduler/0", "scheduler/1", "gateway/0", "gateway/1"],
    )
    assert names == [*before, *gangs, *after]


def test_a_gateway_knows_where_its_models_are() -> None:
    config = ServerConfig(embedder=EmbedderSettings(device="cuda:1"))
    for placement, device in ((on_cpu(), "cpu"), (on_gpus(), "cuda")):
        told = settings_of(tree_of(config, placement), "gateway/0")
        assert (told["device"], told["embedding_device"]) == (device, "cuda:1")


def test_a_gateway_knows_what_decides_the_exact_tokens() -> None:
    def numerics(placement: Placement, **worker: object) -> str:
        return settings_of(tree_of(ServerConfig(worker=WorkerSettings(**worker)), placement), "gateway/0")["numerics"]  # pyright: ignore[reportArgumentType]

    all_different = [
        numerics(on_gpus()), numerics(on_cpu()), numerics(on_gpus(tp=2)), numerics(on_gpus(), attention="torch"),
        numerics(on_gpus(), load_format="random"), numerics(replace(on_gpus(), dtype="float16")),
        numerics(on_cpu(), kv_dtype="int8"), numerics(on_cpu(), quantization="int8"),
    ]  # fmt: skip
    assert len(set(all_different)) == len(all_different)
    assert numerics(on_gpus(replicas=2)) == numerics(on_gpus()), "each replica computes alone"


def test_ranks_of_a_gang_die_together_and_meet_anew() -> None:
    gangs = [group for group in tree_of(ServerConfig(), on_cpu(tp=2)) if group.has_rendezvous]
    assert [gang.strategy for gang in gangs] == [Strategy.ONE_FOR_ALL]


def test_each_rank_sees_one_gpu() -> None:
    ranks = workers(tree_of(ServerConfig(), on_gpus(tp=2, replicas=2)))
    assert {name: env["CUDA_VISIBLE_DEVICES"] for name, (_, env) in ranks.items()} == {
        "worker/0.0": "4",
        "worker/0.1": "5",
        "worker/1.0": "6",
        "worker/1.1": "7",
    }
    assert {(s.device, s.device_index, s.tp, s.dtype) for s, _ in ranks.values()} == {("cuda", 0, 2, "bfloat16")}
    assert all(env["NCCL_NVLS_ENABLE"] == "0" for _, env in ranks.values())
    assert all((env["NCCL_SOCKET_IFNAME"], env["NCCL_RAS_ENABLE"]) == ("lo", "0") for _, env in ranks.values())
    assert all(env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID" for _, env in ranks.values())


def test_the_ranks_of_all_stages_are_one_gang() -> None:
    groups = tree_of(ServerConfig(), on_gpus(tp=2, pp=2))
    ranks = [(s.stage, s.tensor_rank, s.is_reporter, env["CUDA_VISIBLE_DEVICES"]) for s, env in workers(groups).values()]
    assert ranks == [(0, 0, False, "4"), (0, 1, False, "5"), (1, 0, True, "6"), (1, 1, False, "7")]
    scheduler = next(child for group in groups for child in group.children if child.name == "scheduler/0")
    settings = msgspec.json.decode(scheduler.settings, type=SchedulerSettings)
    assert (settings.tp, settings.pp, settings.most_in_flight) == (4, 2, 3)


@pytest.mark.parametrize(("placement", "device"), [(on_cpu(), "cpu"), (on_gpus(), "cuda")])
def test_the_spare_of_a_rank_has_the_engine_of_its_device(placement: Placement, device: str) -> None:
    groups = tree_of(ServerConfig(), placement)
    rank = next(child for group in groups for child in group.children if child.name == "worker/0.0")
    assert rank.warm_ups == (
        "uvloop",
        "gpu_workers.process.worker",
        f"gpu_workers.process.engine_loading:import_engine={device}",
    )


def test_cpu_ranks_share_the_cores() -> None:
    ranks = workers(tree_of(ServerConfig(), on_cpu(tp=2)))
    assert {env["OMP_NUM_THREADS"] for _, env in ranks.values()} == {"4"}
    assert {(s.device, s.cpu_ranks, s.rank) for s, _ in ranks.values()} == {("cpu", 2, 0), ("cpu", 2, 1)}


def test_without_speculation_nobody_drafts() -> None:
    groups = tree_of(ServerConfig(speculate=False))
    assert "speculation/0" not in [child.name for group in groups for child in group.children]
    assert settings_of(groups, "scheduler/0")["speculation"] is False
    assert "speculation" not in settings_of(groups, "gateway/0"), "the scheduler alone decides it"


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_only_replica_does_not_tell_the_directory_of_its_pages(replicas: int) -> None:
    assert settings_of(tree_of(ServerConfig(), on_cpu(replicas=replicas)), "scheduler/0")["tells_directory"] is (replicas > 1)


@pytest.mark.parametrize(
    ("asked", "made_for", "length"), [(0, 4096, 4096), (1024, 4096, 1024), (9999, 4096, 4096), (0, 0, 8192)]
)
def test_length_is_the_smaller_of_what_was_asked_and_what_the_model_allows(asked: int, made_for: int, length: int) -> None:
    groups = tree_of(ServerConfig(max_length=asked), model_length=made_for)
    assert settings_of(groups, "gateway/0")["max_length"] == length


def test_gateways_share_the_listener_and_own_their_journals() -> None:
    groups = tree_of(ServerConfig(gateways=2, zeromq_port=5000))
    children = [child for group in groups for child in group.children if child.name.startswith("gateway")]
    assert [child.descriptors for child in children] == [{LISTEN_SOCKET: 9}] * 2
    second = settings_of(groups, "gateway/1")
    assert second["journal_path"] == "/s/journal-1"
    assert second["zeromq_endpoint"] == "ipc:///r/zeromq-1"
    assert second["zeromq_tcp_endpoint"] == "tcp://127.0.0.1:5001"


def test_cpu_steps_are_given_more_time() -> None:
    def step_s(placement: Placement) -> float:
        groups = tree_of(ServerConfig(), placement)
        return next(c.deadlines.step_s for g in groups for c in g.children if c.name == "worker/0.0")

    assert step_s(on_cpu()) > step_s(on_gpus())


def test_steps_with_prompts_are_bounded_by_time_on_gpus_unless_the_operator_says_otherwise() -> None:
    def step_s(given_s: float | None, placement: Placement) -> float:
        config = ServerConfig(scheduler=SchedulerSettings(step_s=given_s))
        return settings_of(tree_of(config, placement), "scheduler/0")["step_s"]

    assert (step_s(None, on_gpus()), step_s(None, on_cpu())) == (0.03, 0.0)
    assert [step_s(given_s, placement) for given_s in (0.0, 0.5) for placement in (on_gpus(), on_cpu())] == [0.0, 0.0, 0.5, 0.5]


@pytest.mark.parametrize("standby", [False, True], ids=["vault", "standby"])
def test_a_vault_starts_before_its_gang_and_a_standby_gang_after_it(standby: bool) -> None:
    groups = tree_of(ServerConfig(vault=not standby), on_cpu(tp=2, has_standby=standby))
    names = [child.name for group in groups for child in group.children]
    seats = [["worker/0.0", "worker/0.1"], ["worker/0.0b", "worker/0.1b"] if standby else []]
    assert names[names.index("vault/0") :] == ["vault/0", *seats[0], *seats[1], "scheduler/0", "gateway/0"]
    assert [group.standby_of for group in groups if group.has_rendezvous] == ["", "gang 0"][: 1 + standby]
    assert all(settings.vault and settings.standby is standby for settings, _ in workers(groups).values())
    assert settings_of(groups, "scheduler/0")["vault"]


def test_without_them_nothing_is_shared() -> None:
    groups = tree_of(ServerConfig())
    assert not any("vault" in child.name for group in groups for child in group.children)
    assert not any(settings.vault for settings, _ in workers(groups).values())


@pytest.mark.parametrize(
    "config", [ServerConfig(), ServerConfig(gateways=3, vault=True, speculate=False, hold_connections=False)]
)
@pytest.mark.parametrize("placement", [on_cpu(), on_cpu(tp=2, replicas=3), on_cpu(tp=2, replicas=2, has_standby=True)])
def test_the_number_of_children_is_known_before_there_is_a_tree(config: ServerConfig, placement: Placement) -> None:
    assert n_children(config, placement) == sum(len(group.children) for group in tree_of(config, placement))


@pytest.mark.parametrize("replicas", [1, 2])
def test_only_several_replicas_have_places_for_each_other(replicas: int) -> None:
    config = ServerConfig(worker=WorkerSettings(exchange_bytes=7))
    groups = tree_of(config, on_cpu(replicas=replicas))
    assert settings_of(groups, "worker/0.0")["exchange_bytes"] == (7 if replicas > 1 else 0)
    assert settings_of(groups, "worker/0.0")["vault"]
    assert settings_of(groups, "gateway/0")["names_holders"] is (replicas > 1)
