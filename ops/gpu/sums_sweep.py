"""How long sums of a gang take: NCCL, one shot and two shots, by size: `python3 -m ops.gpu.sums_sweep`.

One process for each CUDA device that is seen. Each way computes 20 sums of one size in a captured graph, as the layers of a
step do: the median of the replays, and how far the sums differ. `SymmetricGroup` has the limits that follow from it.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from gpu_workers.cuda.symmetric_group import SumLimits, SymmetricGroup
from gpu_workers.layers.tensor_group import open_world
from ops.gpu.timing import graph_time_ms

_KIB = (8, 64, 256, 512, 768, 1_024, 2_048, 4_096, 8_192, 16_384)
_SUMS = 20  # in one graph
_MOST_BYTES = 32 << 20
_JOIN_S = 120.0
_WAYS = {
    "nccl": SumLimits(0, 0),
    "one_shot": SumLimits(_MOST_BYTES, _MOST_BYTES),
    "two_shots": SumLimits(0, _MOST_BYTES),
}


def main() -> None:
    """Measure with all devices, and print a line of JSON for each size."""
    n_ranks, spawn = torch.cuda.device_count(), multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="tardigrade-sums-") as folder:
        rendezvous = str(Path(folder, "rendezvous"))
        ranks = [spawn.Process(target=measure, args=(rank, n_ranks, rendezvous)) for rank in range(n_ranks)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    sys.exit(any(process.exitcode for process in ranks))


def measure(rank: int, n_ranks: int, rendezvous: str) -> None:
    """The part of one rank."""
    device = torch.device("cuda", rank)
    open_world(rank, n_ranks, Path(rendezvous), device, _JOIN_S)
    groups = {name: SymmetricGroup(rank, n_ranks, device, limits=limits) for name, limits in _WAYS.items()}
    for name, group in groups.items():
        if name != "nccl":
            group.share_memory(torch.bfloat16)
    for kib in _KIB:
        row: dict[str, object] = {"ranks": n_ranks, "kib": kib}
        x = torch.randn(kib << 9, device=device, dtype=torch.bfloat16)
        for name, group in groups.items():
            dist.barrier()
            row[f"{name}_us"] = round(_sum_us(group, x), 1)
        x.normal_()  # NCCL has overwritten it
        sums = [group.all_reduce(x.clone()).float() for group in groups.values()]
        row["greatest_difference"] = round(max(float((one - sums[0]).abs().max()) for one in sums[1:]), 4)
        if rank == 0:
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


def _sum_us(group: SymmetricGroup, x: torch.Tensor) -> float:
    def run() -> None:
        for _ in range(_SUMS):
            group.all_reduce(x)

    return graph_time_ms(run) / _SUMS * 1e3


if __name__ == "__main__":
    main()
