"""A scheduler records the pages of its sequences: the load tools read them, and a disk that refuses the file harms nothing."""

from __future__ import annotations

from pathlib import Path

from ops.bench.cache.trace_file import read_trace
from tests.support.memory_cluster import MemoryCluster
from tests.support.scheduler.scheduler_bench import SchedulerBench, expected, prompt_of


def list_files(directory: Path) -> list[Path]:
    """What is in a directory."""
    return list(directory.iterdir())


async def test_requests_that_share_a_prefix_share_the_numbers_of_its_pages(cluster: MemoryCluster, tmp_path: Path) -> None:
    bench = SchedulerBench(cluster, trace_dir=str(tmp_path))
    await bench.begin()
    prompts = [[*prompt_of(1, 64), 5], [*prompt_of(1, 64), 6], prompt_of(2, 33)]
    for number, prompt in enumerate(prompts):
        bench.gateway.submit(number, prompt, 40)
        await bench.ended(number + 1)
    await bench.scheduler.stop()
    (file,) = list_files(tmp_path)
    assert file.name == f"scheduler-0.{bench.scheduler.spawn_spec.incarnation}.jsonl"
    first, second, third = read_trace(file)
    assert [one.prompt_pages for one in (first, second, third)] == [4, 4, 2]
    assert [len(one.numbers) for one in (first, second, third)] == [(n + 40 - 1) // 16 for n in (65, 65, 33)]
    assert first.numbers[:4] == second.numbers[:4]
    assert len({*first.numbers, *second.numbers, *third.numbers}) == 6 + 2 + 4
    assert first.at_ms <= second.at_ms <= third.at_ms


async def test_a_directory_that_is_not_there_ends_the_record_and_no_sequence(cluster: MemoryCluster, tmp_path: Path) -> None:
    bench = SchedulerBench(cluster, trace_dir=str(tmp_path / "missing"))
    await bench.begin()
    bench.gateway.submit(1, prompt_of(1, 40), 20)
    await bench.ended(1)
    assert bench.gateway.tokens[1] == expected(prompt_of(1, 40), 20)
