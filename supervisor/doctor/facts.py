"""What `supervisor doctor` looks at: facts of a machine, without any judgement."""

from __future__ import annotations

import msgspec

UNLIMITED = -1  # of a limit


class DirectoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of a server, or the nearest one above it that exists."""

    path: str
    exists: bool  # the directory itself
    is_private: bool = True  # it belongs to this user, and nobody else may read it
    is_writable: bool = True
    file_system: str = "ext4"
    free_bytes: int = 1 << 40
    free_files: int = 1 << 20
    sync_ms: float | None = 1.0  # median of a small write with fsync; None: it failed


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """NVIDIA GPUs and their driver."""

    devices: int = 0  # device files
    unreadable: tuple[str, ...] = ()  # device files that this user may not open
    driver: str = ""  # "": no driver is loaded
    nvml_error: str = ""  # why NVML does not answer
    sick: tuple[str, ...] = ()  # devices with memory errors that were not corrected, in words
    c_compiler: str = "gcc"  # "": none is found
    has_headers: bool = True  # those of Python, which a C program needs to become a module
    torch_cuda: str = ""  # for which torch was built, such as "13.0"; "": for CPU cores


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts. Sizes in bytes; limits may be UNLIMITED."""

    python: tuple[int, int]
    missing_packages: tuple[str, ...] = ()  # "name (expected ..., got ...)"
    foreign_supervisor: str = ""  # version of PyPI's package `supervisor`; "": it is not installed
    gpu: DriverFacts = DriverFacts()
    cores: float = 2.0  # that this process may use, by its mask and its group's quota
    open_files: int = 1 << 20  # hard limit
    locked_memory: int = UNLIMITED
    processes: int = UNLIMITED
    shm_bytes: int = 1 << 33
    memory_available: int = 1 << 35
    memory_limit: int = UNLIMITED  # of the control group
    swap_used: int = 0
    overcommit: int = 0  # vm.overcommit_memory
    huge_pages: str = "madvise"  # transparent ones: always, madvise, never; "": not known
    is_clock_synchronised: bool = True
    clock_year: int = 2026
    run_dir: DirectoryFacts
    run_dir_excess: int = 0  # bytes of its path beyond what sockets allow
    state_dir: DirectoryFacts
    model_cache: DirectoryFacts | None  # where converted models are kept; None: this user has no home folder
    port: int = 8000
    port_error: str = ""  # why nobody can listen there; "": it is free
    port_is_ours: bool = False  # a server of this user listens there
