"""Collects the facts of this machine for `supervisor doctor`. What cannot be found out is left at its good value."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from messages.release import PACKAGE
from supervisor.doctor.facts import UNLIMITED, DirectoryFacts, DriverFacts, HostFacts

_FOREIGN = "supervisor"
_N_SYNCS, _SYNC_BYTES = 9, 4096
_TIME_ERROR = 5  # of adjtimex: the clock is not synchronised
_TIMEX_BYTES = 512  # more than the kernel's struct timex
_V2 = Path("/sys/fs/cgroup")


def collect(host: str, port: int, run_dir: Path, state_dir: Path, is_ours: bool) -> HostFacts:
    """The facts for a server at this address with these directories. `is_ours`: a server of this user runs there."""
    from supervisor.directories.run_dir_files import excess_bytes

    soft_processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return HostFacts(
        python=sys.version_info[:2],
        missing_packages=tuple(_missing_packages()),
        foreign_supervisor=_version(_FOREIGN),
        gpu=_gpus(),
        cores=_cores(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        locked_memory=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        processes=_least(soft_processes, _number(_V2 / "pids.max")),
        shm_bytes=_bytes_of(Path("/dev/shm")),
        memory_available=_meminfo("MemAvailable"),
        memory_limit=_number(_V2 / "memory.max"),
        swap_used=_meminfo("SwapTotal") - _meminfo("SwapFree"),
        overcommit=_number(Path("/proc/sys/vm/overcommit_memory")),
        huge_pages=_chosen(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        is_clock_synchronised=_is_clock_synchronised(),
        clock_year=datetime.now(UTC).year,
        run_dir=_directory(run_dir, with_speed=False),
        run_dir_excess=excess_bytes(run_dir),
        state_dir=_directory(state_dir, with_speed=True),
        model_cache=_model_cache(),
        port=port,
        port_error="" if is_ours else _port_error(host, port),
        port_is_ours=is_ours,
    )


def _missing_packages() -> Iterable[str]:
    """What is not installed of that which this program needs, or in another version."""
    from packaging.requirements import Requirement

    with suppress(metadata.PackageNotFoundError):  # a checkout that was never installed
        for text in metadata.requires(PACKAGE) or ():
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            found = _version(wanted.name)
            if not found or not wanted.specifier.contains(found, prereleases=True):
                yield f"{wanted.name}: expected {wanted.specifier}, got {found or 'none'}"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _gpus() -> DriverFacts:
    files = sorted(Path("/dev").glob("nvidia[0-9]*"))
    unreadable = tuple(str(file) for file in files if not os.access(file, os.R_OK | os.W_OK))
    driver, error, sick = "", "", list[str]()
    if files or Path("/proc/driver/nvidia").exists():
        import pynvml

        try:
            pynvml.nvmlInit()
            driver = pynvml.nvmlSystemGetDriverVersion()
            for index in range(pynvml.nvmlDeviceGetCount()):
                with suppress(pynvml.NVMLError):  # a device without error correction
                    kind, counter = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
                    n_errors = pynvml.nvmlDeviceGetTotalEccErrors(pynvml.nvmlDeviceGetHandleByIndex(index), kind, counter)
                    sick += [f"GPU {index}: {n_errors} memory errors that were not corrected"] if n_errors else []
        except pynvml.NVMLError as found:
            error = str(found)
    return DriverFacts(
        devices=len(files),
        unreadable=unreadable,
        driver=driver,
        nvml_error=error,
        sick=tuple(sick),
        c_compiler=_c_compiler(),
        has_headers=(Path(sysconfig.get_path("include")) / "Python.h").exists(),
        torch_cuda=_torch_cuda(),
    )


def _c_compiler() -> str:
    """The one that Triton takes; "" for none."""
    named = os.environ.get("CC")
    return shutil.which(named) or "" if named else shutil.which("gcc") or shutil.which("clang") or ""


def _torch_cuda() -> str:
    """For which CUDA the installed torch was built, without importing it; "" for CPU cores."""
    with suppress(metadata.PackageNotFoundError, OSError):
        file = Path(str(metadata.distribution("torch").locate_file("torch/version.py")))
        for line in file.read_text().splitlines():
            if line.startswith("cuda") and "'" in line:
                return line.split("'")[1]
    return ""


def _cores() -> float:
    cores = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):
        quota, period = (_V2 / "cpu.max").read_text().split()
        cores = min(cores, int(quota) / int(period))  # "max" is no number
    return cores


def _least(*limits: int) -> int:
    return min((limit for limit in limits if limit != UNLIMITED), default=UNLIMITED)


def _number(path: Path) -> int:
    """The number in a file of the kernel; UNLIMITED without one."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return UNLIMITED


def _meminfo(key: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == key:
            return int(rest.split()[0]) * 1024
    return 0


def _chosen(path: Path) -> str:
    """The value in brackets of a choice of the kernel."""
    try:
        return path.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        return ""


def _is_clock_synchronised() -> bool:
    with suppress(OSError, AttributeError):
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        return state != _TIME_ERROR
    return True


def _bytes_of(path: Path) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def _model_cache() -> DirectoryFacts | None:
    from gpu_workers.model_store.model_folder import cache_folder

    with suppress(FileNotFoundError):
        return _directory(cache_folder().absolute(), with_speed=False)
    return None


def _directory(path: Path, with_speed: bool) -> DirectoryFacts:
    exists = os.path.isdir(path)  # False also below a folder that this user may not enter
    there = next(one for one in (path, *path.parents) if os.path.isdir(one))
    found, own = os.statvfs(there), os.stat(there)
    return DirectoryFacts(
        path=str(path),
        exists=exists,
        is_private=own.st_uid == os.getuid() and not own.st_mode & 0o077,
        is_writable=os.access(there, os.W_OK | os.X_OK),
        file_system=_file_system(there),
        free_bytes=found.f_bavail * found.f_frsize,
        free_files=found.f_favail if found.f_files else 1 << 20,
        sync_ms=_sync_ms(there) if with_speed and os.access(there, os.W_OK) else 0.0,
    )


def _file_system(path: Path) -> str:
    """The kind of file system, from the longest mount point above a path."""
    best = ("", "")
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, kind, *_ = line.split()
            if path.is_relative_to(point.replace("\\040", " ")) and len(point) >= len(best[0]):
                best = (point, kind)
    return best[1]


def _sync_ms(folder: Path) -> float | None:
    """The median time of a small write until the disk has it; None if it cannot be written."""
    took = list[float]()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(_N_SYNCS):
                began_s = time.monotonic()
                file.write(b"x" * _SYNC_BYTES)
                file.flush()
                os.fsync(file.fileno())
                took.append(time.monotonic() - began_s)
    except OSError:
        return None
    return statistics.median(took) * 1e3


def _port_error(host: str, port: int) -> str:
    if not port:
        return ""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return ""
