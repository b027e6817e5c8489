"""Memory that can be exchanged for shared memory, as a tensor."""

from __future__ import annotations

import torch

from gpu_workers.vault.cuda_driver import CudaDriver
from gpu_workers.vault.cuda_region import CudaRegion
from gpu_workers.vault.host_region import HostRegion
from gpu_workers.vault.region import Region


def make_region(n_bytes: int, device: torch.device) -> tuple[Region, torch.Tensor]:
    """New private memory on a CPU or a CUDA device, and the same as bytes: uint8 [n_bytes] on that device. The tensor keeps the
    memory. On CPUs it is zeroed when it is first touched; on a GPU all of it is the same few pages until `Region.share`.

    Raises: OSError when there is no memory for it."""
    if device.type == "cpu":
        host = HostRegion(n_bytes)
        return host, torch.frombuffer(host.buffer, dtype=torch.uint8)
    torch.empty(1, device=device)  # makes the context of this process, in which the driver's calls work
    region = CudaRegion(n_bytes, CudaDriver(device.index or 0))
    return region, torch.as_tensor(_Bytes(region), device=device)


class _Bytes:
    """A region of a GPU as torch can read it: an array of bytes (CUDA Array Interface, version 3), which keeps the region."""

    def __init__(self, region: CudaRegion) -> None:
        self._region = region
        self.__cuda_array_interface__ = {
            "shape": (region.n_bytes,),
            "typestr": "|u1",
            "data": (region.address, False),
            "version": 3,
        }
