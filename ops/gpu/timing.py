"""Device time of a function: captured in a graph, replayed, the median of the replays."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch


def graph_time_ms(run: Callable[[], object], replays: int = 12) -> float:
    """Milliseconds of one `run()` on the device, without the host's share. `run` is called three times before the capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # what `run` reads may still be written there
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        run()
    return replay_time_ms(graph.replay, replays)


def replay_time_ms(replay: Callable[[], object], replays: int = 12) -> float:
    """Median milliseconds of `replay()` between two events, after two rounds of warming up."""
    times = []
    for _ in range(replays + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[2:])


def kernel_profile(replay: Callable[[], object], rounds: int = 5) -> list[tuple[str, int, float]]:
    """(kernel name, launches of one replay, microseconds of one replay), the longest first."""
    from torch.profiler import ProfilerActivity, profile

    replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(rounds):
            replay()
        torch.cuda.synchronize()
    rows = [(e.key, e.count // rounds, e.self_device_time_total / rounds) for e in profiler.key_averages()]
    return sorted((row for row in rows if row[2] > 0), key=lambda row: -row[2])
