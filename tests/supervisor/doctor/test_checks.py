"""Each check of the doctor finds nothing on a good machine, and its own fault on a bad one, with a repair."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisor.doctor.checks import CHECKS, Verdict, findings
from supervisor.doctor.facts import DirectoryFacts, DriverFacts, HostFacts

MIB = 1 << 20
GOOD_DIR = DirectoryFacts(path="/var/lib/tardigrade", exists=True)
GOOD_GPU = DriverFacts(devices=2, driver="580.65", torch_cuda="13.0")
GOOD = HostFacts(python=(3, 12), gpu=GOOD_GPU, run_dir=GOOD_DIR, state_dir=GOOD_DIR, model_cache=GOOD_DIR)


def gpu(**changes: Any) -> dict[str, Any]:
    return {"gpu": msgspec.structs.replace(GOOD_GPU, **changes)}


def cache(**changes: Any) -> dict[str, Any]:
    return {"model_cache": msgspec.structs.replace(GOOD_DIR, **changes)}


def state(**changes: Any) -> dict[str, Any]:
    return {"state_dir": msgspec.structs.replace(GOOD_DIR, **changes)}


BAD: list[tuple[str, Verdict, dict[str, Any], str]] = [
    ("python", Verdict.FAILURE, {"python": (3, 10)}, "3.10"),
    ("packages", Verdict.FAILURE, {"missing_packages": ("pyzmq: expected >=27, got 25",)}, "pyzmq"),
    ("other supervisor", Verdict.WARNING, {"foreign_supervisor": "4.2.5"}, "4.2.5"),
    ("gpu driver", Verdict.FAILURE, gpu(nvml_error="Driver/library version mismatch"), "mismatch"),
    ("gpu driver", Verdict.FAILURE, gpu(unreadable=("/dev/nvidia1",)), "/dev/nvidia1"),
    ("gpu driver", Verdict.FAILURE, gpu(torch_cuda=""), "CPU cores"),
    ("gpu driver", Verdict.FAILURE, gpu(driver="535.1"), "580"),
    ("c compiler", Verdict.FAILURE, gpu(c_compiler=""), "C compiler"),
    ("c compiler", Verdict.FAILURE, gpu(has_headers=False), "headers"),
    ("gpu memory", Verdict.WARNING, gpu(sick=("GPU 1: 3 memory errors",)), "GPU 1"),
    ("cores", Verdict.WARNING, {"cores": 0.5}, "0.5"),
    ("memory", Verdict.WARNING, {"memory_available": 1500 * MIB}, "1.5 GiB"),
    ("memory", Verdict.FAILURE, {"memory_limit": 512 * MIB}, "512 MiB"),
    ("swap", Verdict.WARNING, {"swap_used": 1 << 31}, "2.0 GiB"),
    ("overcommit", Verdict.WARNING, {"overcommit": 2}, "is 2"),
    ("huge pages", Verdict.WARNING, {"huge_pages": "always"}, "everything"),
    ("open files", Verdict.WARNING, {"open_files": 4096}, "4,096"),
    ("open files", Verdict.FAILURE, {"open_files": 256}, "256"),
    ("processes", Verdict.WARNING, {"processes": 100}, "100"),
    ("locked memory", Verdict.WARNING, {"locked_memory": 64 * 1024}, "0 MiB"),
    ("shared memory", Verdict.FAILURE, {"shm_bytes": 64 * MIB}, "64 MiB"),
    ("shared memory", Verdict.WARNING, {"shm_bytes": 512 * MIB}, "512 MiB"),
    ("clock", Verdict.FAILURE, {"clock_year": 1970}, "1970"),
    ("clock", Verdict.WARNING, {"is_clock_synchronised": False}, "not synchronised"),
    ("run directory", Verdict.FAILURE, {"run_dir_excess": 9}, "9 bytes"),
    ("run directory", Verdict.FAILURE, {"run_dir": msgspec.structs.replace(GOOD_DIR, is_private=False)}, "alone"),
    ("state directory", Verdict.FAILURE, state(is_writable=False), "may not write"),
    ("state directory", Verdict.WARNING, state(file_system="tmpfs"), "reboot"),
    ("state directory", Verdict.WARNING, state(file_system="nfs4"), "another machine"),
    ("model cache", Verdict.WARNING, {"model_cache": None}, "no home folder"),
    ("model cache", Verdict.WARNING, cache(is_writable=False), "may not write"),
    ("model cache", Verdict.WARNING, cache(free_bytes=500 * MIB), "500 MiB"),
    ("disk space", Verdict.WARNING, state(free_bytes=500 * MIB), "500 MiB"),
    ("disk space", Verdict.FAILURE, state(free_files=3), "3 files"),
    ("disk speed", Verdict.WARNING, state(sync_ms=45.0), "45 ms"),
    ("disk speed", Verdict.FAILURE, state(sync_ms=None), "nothing can be written"),
    ("port", Verdict.FAILURE, {"port_error": "Address already in use"}, "already in use"),
]


def test_nothing_is_found_on_a_good_machine() -> None:
    assert [one for one in findings(GOOD) if one.verdict is not Verdict.GOOD or one.repair] == []
    no_gpu = msgspec.structs.replace(GOOD, gpu=DriverFacts(), locked_memory=64 * 1024, port_is_ours=True)
    assert [one.check for one in findings(no_gpu) if one.verdict is not Verdict.GOOD] == []


@pytest.mark.parametrize(
    ("check", "verdict", "changes", "text"), BAD, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_fault_is_found_by_its_check_alone_with_a_repair(
    check: str, verdict: Verdict, changes: dict[str, Any], text: str
) -> None:
    found = [one for one in findings(msgspec.structs.replace(GOOD, **changes)) if one.verdict is not Verdict.GOOD]
    assert [(one.check, one.verdict) for one in found] == [(check, verdict)]
    assert text in found[0].text
    assert found[0].repair


def test_every_check_can_fail() -> None:
    assert {check for check, *_ in BAD} == set(CHECKS)
