"""The scheduler with a real hash-chain engine behind it: any token lost, repeated or computed on a wrong page shows."""

from __future__ import annotations

import pytest

from actors.cache_directory.directory_actor import DirectoryActor
from actors.cache_directory.settings import DirectorySettings
from actors.pages.eviction.choice import EvictionName
from actors.speculation.settings import SpeculationSettings
from actors.speculation.speculation_actor import SpeculationActor
from gpu_workers.hash_chain import hash_chain_tokens
from gpu_workers.settings import WorkerSettings
from messages.generation.sampling import Sampling
from messages.generation.sequences import Ack, Cancel
from tests.support.memory_cluster import Gang, MemoryCluster
from tests.support.metric_values import metric_value
from tests.support.scheduler.scheduler_bench import WORKER, SchedulerBench, expected, prompt_of


async def test_sequences_of_all_lengths_end_exactly_once_with_the_right_tokens(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    for i in range(40):
        bench.gateway.submit(i, prompt_of(i, 1 + i * 7 % 200), 1 + i * 5 % 60)
    await bench.ended(40)
    for i in range(40):
        assert bench.gateway.tokens[i] == expected(prompt_of(i, 1 + i * 7 % 200), 1 + i * 5 % 60)
        assert bench.gateway.endings[i].reason == "length"
    assert max(len(plan.row_slots) for plan in bench.gang.plans) == 8


async def test_preemption_under_page_pressure_changes_no_token(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster, WorkerSettings(**{**_fields(WORKER), "hash_chain_pages": 20}))
    await bench.begin()
    for i in range(12):
        bench.gateway.submit(i, prompt_of(i, 40), 100)
    await bench.ended(12)
    for i in range(12):
        assert bench.gateway.tokens[i] == expected(prompt_of(i, 40), 100)
    assert metric_value(bench.scheduler.metrics.preemptions) > 0
    bench.scheduler.statistics()
    assert metric_value(bench.scheduler.metrics.evicted_pages) > 0


@pytest.mark.parametrize("name", EvictionName)
async def test_the_figures_of_a_policy_are_in_the_metrics_and_in_the_status(cluster: MemoryCluster, name: EvictionName) -> None:
    bench = SchedulerBench(cluster, WorkerSettings(**{**_fields(WORKER), "hash_chain_pages": 20}), eviction=name)
    await bench.begin()
    for i in range(12):
        bench.gateway.submit(i, prompt_of(i % 3, 40), 100)
    await bench.ended(12)
    for i in range(12):
        assert bench.gateway.tokens[i] == expected(prompt_of(i % 3, 40), 100)
    numbers = bench.scheduler.statistics()
    policies = next(iter(bench.scheduler.metrics.by_policy["evictions"].collect())).samples
    n_evicted = metric_value(bench.scheduler.metrics.evicted_pages)
    assert n_evicted > 0
    assert sum(sample.value for sample in policies) == n_evicted
    assert sum(number for field, number in numbers.items() if field.endswith("_evictions")) == n_evicted
    assert name is EvictionName.ADAPTIVE or numbers[f"{name.value}_evictions"] == n_evicted


async def test_shared_prefix_skips_prefill_and_is_reported(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    prefix = prompt_of(1, 160)
    bench.gateway.submit(1, [*prefix, 5], 4)
    await bench.ended(1)
    for i in range(2, 6):
        bench.gateway.submit(i, [*prefix, i], 4)
    await bench.ended(5)
    for i in range(2, 6):
        assert bench.gateway.tokens[i] == expected([*prefix, i], 4)
        assert bench.gateway.endings[i].n_cached == 160
    numbers = bench.scheduler.statistics()
    assert (numbers["prompt_tokens"], numbers["cached_tokens"], numbers["pages_reused"]) == (5 * 161, 4 * 160, 4 * 10)
    assert numbers["prefill_saved_s"] >= 0.0
    assert numbers["pages_saved_bytes"] == 4 * 160 * 8


@pytest.mark.parametrize("is_same_memory", [True, False])
async def test_pages_outlive_a_gang_exactly_as_long_as_its_memory(cluster: MemoryCluster, is_same_memory: bool) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    prefix = prompt_of(1, 160)
    bench.gateway.submit(1, [*prefix, 5], 4)
    await bench.ended(1)
    await cluster.kill("worker/0.0")
    bench.gateway.submit(2, [*prefix, 6], 4)
    cluster.introduce(Gang(cluster, WORKER, incarnation=2, before=bench.gang if is_same_memory else None))
    await bench.ended(2)
    assert bench.gateway.endings[2].n_cached == (160 if is_same_memory else 0)
    assert bench.gateway.tokens[2] == expected([*prefix, 6], 4)


async def test_a_step_that_was_lost_leaves_no_page_behind(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    bench.gang.hold()
    prompt = prompt_of(1, 49)
    bench.gateway.submit(1, prompt, 4)
    await cluster.wait_until(lambda: bool(bench.gang.plans))
    await cluster.kill("worker/0.0")
    successor = Gang(cluster, WORKER, incarnation=2, before=bench.gang)
    cluster.introduce(successor)
    await bench.ended(1)
    assert successor.plans[0].row_starts.tolist() == [0]  # from the first token: no result of the first step has come
    assert bench.gateway.tokens[1] == expected(prompt, 4)


async def test_same_prompts_at_once_wait_one_step_for_the_first_and_share_it(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    for i in range(4):
        bench.gateway.submit(i, prompt_of(3, 49), 8)
    await bench.ended(4)
    assert [bench.gateway.endings[i].n_cached for i in range(4)] == [0, 48, 48, 48]
    assert all(bench.gateway.tokens[i] == expected(prompt_of(3, 49), 8) for i in range(4))


async def test_stop_token_ends_and_is_the_last_token(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    want = expected([1, 2, 3], 20)
    bench.gateway.submit(1, [1, 2, 3], 20, stop_tokens=[want[7]])
    await bench.ended(1)
    assert bench.gateway.tokens[1] == want[: want.index(want[7]) + 1]
    assert bench.gateway.endings[1].reason == "stop"


async def test_seeded_sampling_continues_over_a_resubmission(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    sampling = Sampling(temperature=0.8, seed=42)
    want = expected([9, 8, 7], 30, seed=42)
    bench.gateway.submit(1, [9, 8, 7, *want[:10]], 30, n_prompt=3, sampling=sampling)
    await bench.ended(1)
    assert bench.gateway.tokens[1] == want[10:]
    assert bench.gateway.first_index[1] == 10


async def test_lost_gang_is_recomputed(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    for i in range(10):
        bench.gateway.submit(i, prompt_of(i, 30), 200)
    for incarnation in (2, 3, 4):
        seen = bench.gateway.n_messages
        await cluster.wait_until(lambda seen=seen: bench.gateway.n_messages > seen + 20)
        await cluster.kill("worker/0.0")
        await cluster.settle(50)
        cluster.introduce(Gang(cluster, WORKER, incarnation))
    await bench.ended(10)
    for i in range(10):
        assert bench.gateway.tokens[i] == expected(prompt_of(i, 30), 200)


async def test_a_gang_with_the_memory_of_the_last_one_computes_again_only_what_was_in_flight(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    n, n_tokens, n_deaths = 8, 90, 5
    for i in range(n):
        bench.gateway.submit(i, prompt_of(i, 30), n_tokens)
    await cluster.wait_until(lambda: all(bench.gateway.tokens[i] for i in range(n)))  # all prompts are computed
    for death in range(n_deaths):
        seen = bench.gateway.n_messages
        await cluster.wait_until(lambda seen=seen: bench.gateway.n_messages > seen + 5)
        before = cluster.scripted["worker/0.0"]
        assert isinstance(before, Gang)
        await cluster.kill("worker/0.0")
        await cluster.settle(50)
        cluster.introduce(Gang(cluster, WORKER, death + 2, before=before))
    await bench.ended(n)
    for i in range(n):
        assert bench.gateway.tokens[i] == expected(prompt_of(i, 30), n_tokens)
    metrics = bench.scheduler.metrics
    bench.scheduler.statistics()
    assert metric_value(metrics.kept_tail_tokens) > n_deaths * n
    most_in_flight = bench.scheduler.settings.plans_in_flight * n  # tokens, because the hash chain takes no leases
    assert metric_value(metrics.computed_tokens) <= n * (30 + n_tokens - 1) + n_deaths * most_in_flight


async def test_refusals_and_cancellation(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    await bench.begin()
    bench.gateway.submit(1, prompt_of(1, 512), 1)
    bench.gateway.submit(2, [5, 40000], 1)
    bench.gateway.submit(3, prompt_of(3, 20), 400)
    await cluster.wait_until(lambda: len(bench.gateway.tokens[3]) > 5)
    bench.gateway.mailbox.send("scheduler/0", Cancel(attempt=3, why="client_left"))
    await bench.ended(3)
    assert bench.gateway.refused[1].code == "too_long"
    assert "511" in bench.gateway.refused[1].detail or "512" in bench.gateway.refused[1].detail
    assert bench.gateway.refused[2].code == "invalid"
    assert "40000" in bench.gateway.refused[2].detail
    assert bench.gateway.endings[3].reason == "cancelled"
    await cluster.settle()
    assert bench.scheduler.statistics()["running"] == 0


async def test_a_prompt_that_memory_can_never_hold_is_refused_also_when_it_came_before_the_gang(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster, WorkerSettings(**{**_fields(WORKER), "hash_chain_pages": 4}))
    await cluster.wait_until(lambda: "scheduler/0" in cluster.up)
    cluster.introduce(bench.gateway)
    await cluster.settle()
    bench.gateway.submit(1, prompt_of(1, 64), 1)
    await cluster.settle()
    assert bench.gateway.taken == {1}
    cluster.introduce(bench.gang)
    await bench.ended(1)
    bench.gateway.submit(2, prompt_of(1, 64), 1)
    await bench.ended(2)
    assert {refused.code for refused in bench.gateway.refused.values()} == {"too_large_for_memory"}


async def test_a_gateway_that_does_not_acknowledge_pauses_only_itself(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster, unacked_messages=8)
    await bench.begin()
    bench.gateway.acknowledges = False
    bench.gateway.submit(1, [1, 2, 3], 300)
    await cluster.settle(2000)
    paused_at = bench.gateway.n_messages
    assert paused_at <= 8 + 3
    bench.gateway.acknowledges = True
    bench.gateway.mailbox.send("scheduler/0", Ack(up_to=paused_at))
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected([1, 2, 3], 300)


async def test_leases_give_the_same_tokens_in_fewer_plans(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster, WorkerSettings(**{**_fields(WORKER), "max_lease_steps": 8}))
    await bench.begin()
    for i in range(4):
        bench.gateway.submit(i, prompt_of(i, 20), 120 + i)
    await bench.ended(4)
    for i in range(4):
        assert bench.gateway.tokens[i] == expected(prompt_of(i, 20), 120 + i)
    assert any(plan.n_steps == 8 for plan in bench.gang.plans)
    assert len(bench.gang.plans) < 60


async def test_drafts_change_no_token_and_speculation_may_die(cluster: MemoryCluster) -> None:
    bench = SchedulerBench(cluster)
    cluster.start(SpeculationActor, "speculation/0", SpeculationSettings())
    cluster.start(DirectoryActor, "cache_directory/0", DirectorySettings())
    await bench.begin()
    await cluster.wait_until(lambda: {"speculation/0", "cache_directory/0"} <= set(cluster.up))
    chain = expected([4, 4, 4], 60)
    prompt = [4, 4, 4, *chain, 4, 4, 4]  # the chain of this prompt does not follow the first one's: wrong drafts
    bench.gateway.submit(1, prompt, 100, speculation=True)
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected(prompt, 100)
    await cluster.kill("speculation/0")
    await cluster.kill("cache_directory/0")
    bench.gateway.submit(2, prompt, 50, speculation=True)
    await bench.ended(2)
    assert bench.gateway.tokens[2] == expected(prompt, 50)


@pytest.mark.parametrize("tells_directory", [True, False])
async def test_the_directory_learns_the_pages_of_a_replica_that_is_not_the_only_one(
    cluster: MemoryCluster, tells_directory: bool
) -> None:
    bench = SchedulerBench(cluster, tells_directory=tells_directory)
    directory = cluster.start(DirectoryActor, "cache_directory/0", DirectorySettings())
    await bench.begin()
    await cluster.wait_until(lambda: "cache_directory/0" in cluster.up)
    bench.gateway.submit(1, prompt_of(1, 40), 8)
    await bench.ended(1)
    await cluster.settle(20)
    assert directory.statistics()["hashes"] == (2 if tells_directory else 0)
    ledger = bench.scheduler._gang.ledger
    assert ledger is not None
    assert ledger.take_changes() == ([], []), "changes that nobody wants do not pile up"


async def test_accepted_and_rejected_drafts_give_the_tokens_of_plain_decoding(cluster: MemoryCluster) -> None:
    coin = WorkerSettings(**{**_fields(WORKER), "hash_chain_vocabulary": 2})  # tails repeat, half of the drafts fail
    bench = SchedulerBench(cluster, coin)
    cluster.start(SpeculationActor, "speculation/0", SpeculationSettings())
    await bench.begin()
    await cluster.wait_until(lambda: "speculation/0" in cluster.up)
    for i in range(3):
        bench.gateway.submit(i, [i % 2, 1, 0, 1, 1], 300, speculation=True)
    await bench.ended(3)
    for i in range(3):
        assert bench.gateway.tokens[i] == hash_chain_tokens([i % 2, 1, 0, 1, 1], 300, 0, 2)
    metrics = bench.scheduler.metrics
    assert 0 < metric_value(metrics.accepted_tokens) < metric_value(metrics.drafted_tokens)
    assert any(len(plan.draft_ids) for plan in bench.gang.plans)
    works = [ending.work for ending in bench.gateway.endings.values()]
    assert sum(work.n_accepted for work in works if work) == metric_value(metrics.accepted_tokens)
    assert sum(work.n_drafted for work in works if work) == metric_value(metrics.drafted_tokens)
    assert all(work and work.queue_s >= 0 and work.prefill_s > 0 and work.decode_s > 0 for work in works)


def _fields(settings: WorkerSettings) -> dict:
    return {name: getattr(settings, name) for name in settings.__struct_fields__}
