"""The checks of `supervisor doctor`: each looks at facts and gives one finding. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from supervisor.doctor.facts import UNLIMITED, DirectoryFacts, HostFacts

_MIB, _GIB = 1 << 20, 1 << 30
_FEW_FILES, _VERY_FEW_FILES = 16_384, 1024
_LEAST_PROCESSES = 512
_LEAST_YEAR = 2025  # certificates and journals go by the wall clock
_SLOW_SYNC_MS = 20.0
_LEAST_DRIVER = {13: 580, 12: 525, 11: 450}  # by the major version of CUDA, from NVIDIA's table of compatibility
_IN_MEMORY = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")


class Verdict(StrEnum):
    """How bad a finding is."""

    GOOD = "ok"
    WARNING = "warning"  # the server works, but worse or for less long
    FAILURE = "failure"  # the server does not start, or soon fails


class Finding(msgspec.Struct, frozen=True):
    """One finding. `repair`: a command that mends it; "" where there is nothing to mend."""

    check: str
    verdict: Verdict
    text: str
    repair: str = ""


Result = tuple[Verdict, str, str]
_Check = Callable[[HostFacts], Result]


def findings(facts: HostFacts) -> list[Finding]:
    """One finding of each check, in their order."""
    return [Finding(name, *check(facts)) for name, check in CHECKS.items()]


def _good(text: str) -> Result:
    return Verdict.GOOD, text, ""


def _python(facts: HostFacts) -> Result:
    shown = ".".join(map(str, facts.python))
    if facts.python < (3, 11):
        return Verdict.FAILURE, f"Python {shown}, expected 3.11 or newer", "python3.12 -m venv .venv"
    return _good(f"Python {shown}")


def _packages(facts: HostFacts) -> Result:
    if facts.missing_packages:
        return Verdict.FAILURE, "; ".join(facts.missing_packages), "pip install --upgrade tardigrade-serve"
    return _good("all packages are there")


def _foreign(facts: HostFacts) -> Result:
    if facts.foreign_supervisor:
        what = (
            f"PyPI's package supervisor {facts.foreign_supervisor} shares the folder of this one's module: both work, but"
            " the removal or an upgrade of either may break the other"
        )
        return Verdict.WARNING, what, "pip uninstall -y supervisor && pip install --force-reinstall --no-deps tardigrade-serve"
    return _good("no other package named supervisor")


def _driver(facts: HostFacts) -> Result:
    gpu = facts.gpu
    if not gpu.devices and not gpu.driver:
        return _good("no NVIDIA GPU: the model runs on CPU cores")
    if gpu.nvml_error:
        return Verdict.FAILURE, f"{gpu.devices} GPUs, but the driver does not answer: {gpu.nvml_error}", "sudo nvidia-smi"
    if gpu.unreadable:
        repair = "sudo usermod -aG video,render $USER  # and log in again; docker run --gpus all in a container"
        return Verdict.FAILURE, f"this user may not open {', '.join(gpu.unreadable)}", repair
    if not gpu.torch_cuda:
        text = f"{gpu.devices} GPUs, but this torch was built for CPU cores"
        return Verdict.FAILURE, text, "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130"
    least = _LEAST_DRIVER.get(int(gpu.torch_cuda.partition(".")[0]), 0)
    if gpu.driver and int(gpu.driver.partition(".")[0]) < least:
        text = f"driver {gpu.driver} is too old for CUDA {gpu.torch_cuda} of this torch, expected {least} or newer"
        return Verdict.FAILURE, text, f"sudo apt-get install nvidia-driver-{least}"
    return _good(f"driver {gpu.driver}, {gpu.devices} GPUs, CUDA {gpu.torch_cuda}")


def _c_compiler(facts: HostFacts) -> Result:
    gpu = facts.gpu
    if not gpu.devices or (gpu.c_compiler and gpu.has_headers):
        return _good(f"C compiler: {gpu.c_compiler}" if gpu.devices else "no C compiler is needed without a GPU")
    missing = "the headers of Python" if gpu.c_compiler else "a C compiler"
    text = f"kernels of GPUs need {missing}: Triton compiles a small C program for each"
    return Verdict.FAILURE, text, "sudo apt-get install gcc libc6-dev python3-dev"


def _gpu_memory(facts: HostFacts) -> Result:
    if facts.gpu.sick:
        return Verdict.WARNING, "; ".join(facts.gpu.sick), "sudo nvidia-smi --gpu-reset  # with no program on it"
    return _good("no uncorrected memory errors")


def _cores(facts: HostFacts) -> Result:
    if facts.cores < 2:
        text = f"{facts.cores:g} cores for some eight processes: answers wait for each other"
        return Verdict.WARNING, text, "docker run --cpus 4, or CPUQuota=400% in the systemd unit"
    return _good(f"{facts.cores:g} cores")


def _open_files(facts: HostFacts) -> Result:
    limit = facts.open_files
    if limit == UNLIMITED or limit >= _FEW_FILES:
        return _good("no limit of open files" if limit == UNLIMITED else f"{limit:,} open files")
    verdict = Verdict.FAILURE if limit < _VERY_FEW_FILES else Verdict.WARNING
    text = f"at most {limit:,} open files, so few clients at once; expected {_FEW_FILES:,} or more"
    return verdict, text, "ulimit -Hn 65536, or LimitNOFILE=65536 in the systemd unit"


def _processes(facts: HostFacts) -> Result:
    if facts.processes != UNLIMITED and facts.processes < _LEAST_PROCESSES:
        text = f"at most {facts.processes} processes and threads, expected {_LEAST_PROCESSES} or more"
        return Verdict.WARNING, text, "ulimit -u 4096, TasksMax=4096 in the systemd unit, or docker run --pids-limit 4096"
    return _good("enough processes and threads")


def _locked_memory(facts: HostFacts) -> Result:
    limit = facts.locked_memory
    if facts.gpu.devices and limit != UNLIMITED and limit < _GIB:
        text = f"at most {_size(limit)} of locked memory: RDMA and some drivers refuse pinned memory"
        return Verdict.WARNING, text, "ulimit -l unlimited, LimitMEMLOCK=infinity, or docker run --ulimit memlock=-1"
    return _good("no limit of locked memory" if limit == UNLIMITED else f"{_size(limit)} of locked memory")


def _shared_memory(facts: HostFacts) -> Result:
    if facts.shm_bytes < _GIB:
        verdict = Verdict.FAILURE if facts.gpu.devices > 1 and facts.shm_bytes < 256 * _MIB else Verdict.WARNING
        text = f"/dev/shm has {_size(facts.shm_bytes)}: NCCL needs more between GPUs, expected 1 GiB or more"
        return verdict, text, "sudo mount -o remount,size=8G /dev/shm, or docker run --shm-size 8g"
    return _good(f"/dev/shm has {_size(facts.shm_bytes)}")


def _memory(facts: HostFacts) -> Result:
    limit = facts.memory_limit
    least = facts.memory_available if limit == UNLIMITED else min(limit, facts.memory_available)
    text = f"{_size(facts.memory_available)} available" + ("" if limit == UNLIMITED else f", {_size(limit)} for this group")
    if least < 2 * _GIB:
        verdict = Verdict.FAILURE if least < _GIB else Verdict.WARNING
        return (
            verdict,
            f"{text}; expected 2 GiB or more for the processes alone",
            "docker run --memory 8g, or end other programs",
        )
    return _good(text)


def _swap(facts: HostFacts) -> Result:
    if facts.swap_used > 256 * _MIB:
        text = f"{_size(facts.swap_used)} are swapped out: a step waits for the disk"
        return Verdict.WARNING, text, "sudo swapoff -a && sudo swapon -a"
    return _good("nothing is swapped out" if not facts.swap_used else f"{_size(facts.swap_used)} are swapped out")


def _overcommit(facts: HostFacts) -> Result:
    if facts.overcommit == 2:
        text = "vm.overcommit_memory is 2: CUDA and mapped files reserve more addresses than there is memory"
        return Verdict.WARNING, text, "sudo sysctl vm.overcommit_memory=0"
    return _good("memory may be reserved in advance")


def _huge_pages(facts: HostFacts) -> Result:
    if facts.huge_pages == "always":
        text = "transparent huge pages for everything: the first use of memory pauses for longer, and processes take more of it"
        return Verdict.WARNING, text, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    return _good(f"transparent huge pages: {facts.huge_pages or 'not known'}")


def _clock(facts: HostFacts) -> Result:
    if facts.clock_year < _LEAST_YEAR:
        return Verdict.FAILURE, f"the clock says {facts.clock_year}: certificates are refused", "sudo timedatectl set-ntp true"
    if not facts.is_clock_synchronised:
        return Verdict.WARNING, "the clock is not synchronised: limits of a day and logs drift", "sudo timedatectl set-ntp true"
    return _good("the clock is synchronised")


def _run_dir(facts: HostFacts) -> Result:
    where = facts.run_dir
    if facts.run_dir_excess > 0:
        text = f"{where.path} is {facts.run_dir_excess} bytes too long for the names of sockets"
        return Verdict.FAILURE, text, "supervisor start --run-dir /tmp/tardigrade"
    return _directory(where, "the run directory") or _good(f"{where.path} can be used")


def _state_dir(facts: HostFacts) -> Result:
    where = facts.state_dir
    if problem := _directory(where, "the state directory"):
        return problem
    if where.file_system in _IN_MEMORY:
        text = f"{where.path} is in memory ({where.file_system}): journals do not survive a reboot"
        return Verdict.WARNING, text, "supervisor start --state-dir /var/lib/tardigrade"
    if where.file_system in _REMOTE:
        text = f"{where.path} is on another machine ({where.file_system}): its pauses stop answers"
        return Verdict.WARNING, text, "supervisor start --state-dir /var/lib/tardigrade"
    return _good(f"{where.path} on {where.file_system}")


def _directory(where: DirectoryFacts, what: str) -> Result | None:
    if where.exists and not where.is_private:
        return (
            Verdict.FAILURE,
            f"{what} {where.path} is not this user's alone",
            f"sudo chown $USER {where.path}; chmod 700 {where.path}",
        )
    if not where.is_writable:
        return Verdict.FAILURE, f"this user may not write {what} {where.path}", f"sudo install -d -m 700 -o $USER {where.path}"
    return None


def _model_cache(facts: HostFacts) -> Result:
    where, repair = facts.model_cache, "TARDIGRADE_CACHE=/var/lib/tardigrade/models supervisor start"
    if where is None or not where.is_writable:
        folder = f"this user may not write {where.path}" if where else "this user has no home folder"
        return Verdict.WARNING, f"{folder}: packaged and GGUF models, which are converted once, do not start", repair
    if where.free_bytes < _GIB:
        return Verdict.WARNING, f"{_size(where.free_bytes)} are free at {where.path} for converted models", repair
    return _good(f"{where.path} can be used")


def _disk_space(facts: HostFacts) -> Result:
    where = facts.state_dir
    if where.free_bytes < _GIB or where.free_files < 1000:
        verdict = Verdict.FAILURE if where.free_bytes < 128 * _MIB or where.free_files < 100 else Verdict.WARNING
        text = f"{_size(where.free_bytes)} and {where.free_files:,} files are free at {where.path}: journals need 1 GiB"
        return verdict, text, f"df -h {where.path}; du -xh {where.path} | sort -h | tail"
    return _good(f"{_size(where.free_bytes)} free")


def _disk_speed(facts: HostFacts) -> Result:
    took_ms = facts.state_dir.sync_ms
    if took_ms is None:
        text = f"nothing can be written and kept at {facts.state_dir.path}"
        return Verdict.FAILURE, text, f"touch {facts.state_dir.path}/probe  # says why"
    if took_ms > _SLOW_SYNC_MS:
        text = f"a write takes {took_ms:.0f} ms until the disk has it: each request waits for one"
        return Verdict.WARNING, text, "supervisor start --state-dir DIRECTORY_ON_A_LOCAL_SSD"
    return _good(f"a write takes {took_ms:.1f} ms until the disk has it")


def _port(facts: HostFacts) -> Result:
    if facts.port_is_ours:
        return _good(f"a server of this user listens on port {facts.port}")
    if facts.port_error:
        text = f"nobody can listen on port {facts.port}: {facts.port_error}"
        return Verdict.FAILURE, text, f"ss -ltnp 'sport = :{facts.port}', or supervisor start --port 0"
    return _good(f"port {facts.port} is free")


def _size(n_bytes: int) -> str:
    return f"{n_bytes / _GIB:,.1f} GiB" if n_bytes >= _GIB else f"{n_bytes / _MIB:,.0f} MiB"


CHECKS: dict[str, _Check] = {
    "python": _python,
    "packages": _packages,
    "other supervisor": _foreign,
    "gpu driver": _driver,
    "c compiler": _c_compiler,
    "gpu memory": _gpu_memory,
    "cores": _cores,
    "memory": _memory,
    "swap": _swap,
    "overcommit": _overcommit,
    "huge pages": _huge_pages,
    "open files": _open_files,
    "processes": _processes,
    "locked memory": _locked_memory,
    "shared memory": _shared_memory,
    "clock": _clock,
    "run directory": _run_dir,
    "state directory": _state_dir,
    "model cache": _model_cache,
    "disk space": _disk_space,
    "disk speed": _disk_speed,
    "port": _port,
}
