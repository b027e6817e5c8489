"""Names of actors and the ids of requests: how they are built, read and chosen; and the id of the machine's boot.

    supervisor/0      the supervisor; there is one for each server
    gateway/2         gateway number 2
    scheduler/0       the scheduler of replica 0
    scheduler/1000    the scheduler of the first replica of model 1: those of model m have the numbers from m * 1000 on
    vault/0           the vault of replica 0
    accounts/0        the process that counts what tenants use, if clients show API keys
    gpu_monitor/0     the process that reads the sensors of the GPUs, if there are any
    embedder/0        the process that computes embeddings, if there is one
    worker/0.1        rank 1 of the gang of replica 0, in the first seat
    worker/0.1b       the same rank in seat "b": a replica may have a second gang as a standby

A name stays the same through all incarnations of an actor. It does not say which of two gangs is active; the supervisor knows
that. After a promotion the gang in seat "b" is active, and the next gang in the first seat is its standby.
"""

from __future__ import annotations

import re
import secrets
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

SUPERVISOR = "supervisor/0"
_WORKING = (
    "custodian", "accounts", "gpu_monitor", "cache_directory", "speculation", "vault", "embedder", "worker", "scheduler",
    "gateway",
)  # fmt: skip
ROLES = (SUPERVISOR.partition("/")[0], *_WORKING, "operator")
FIRST_SEAT = "a"  # not written in names
STANDBY_SEAT = "b"  # where the first standby gang sits; each promotion changes the roles of the two seats
SEATS = (FIRST_SEAT, STANDBY_SEAT)
REPLICAS_OF_A_MODEL = 1000  # numbers of replicas that one served model has; model 0 is the main one
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAME = re.compile(rf"{SUPERVISOR}|operator/[!-~]{{1,64}}|({'|'.join(_WORKING)})/[0-9]{{1,4}}(\.[0-9]{{1,4}}{STANDBY_SEAT}?)?")


def actor_name(role: str, index: int, rank: int | None = None, seat: str = FIRST_SEAT) -> str:
    """The name of an actor: `actor_name("worker", 0, 1)` is "worker/0.1".

    `index`: replica of a worker, scheduler or vault, number of any other actor. `rank` and `seat`: for workers only.
    Raises: ValueError for an unknown role or seat.
    """
    if role not in ROLES:
        raise ValueError(f"role: expected one of {', '.join(ROLES)}, got {role!r}")
    if seat not in SEATS:
        raise ValueError(f"seat: expected one of {', '.join(SEATS)}, got {seat!r}")
    if rank is None:
        return f"{role}/{index}"
    return f"{role}/{index}.{rank}{'' if seat == FIRST_SEAT else seat}"


def is_actor_name(name: str) -> bool:
    """True if an actor of this system, or an operator's command, can have this name."""
    return _NAME.fullmatch(name) is not None


def role_of(name: str) -> str:
    """The role part of an actor's name."""
    return name.partition("/")[0]


def replica_of(name: str) -> int:
    """The index in an actor's name: the replica of a worker, scheduler or vault, the number of any other actor."""
    return int(name.partition("/")[2].partition(".")[0])


@lru_cache(maxsize=256)
def model_of(name: str) -> int:
    """The number of the model that a worker or a scheduler with this name serves."""
    return replica_of(name) // REPLICAS_OF_A_MODEL


def seat_of(name: str) -> str:
    """The seat of a worker's gang; the first seat for every other actor."""
    return name[-1] if name[-1] in SEATS else FIRST_SEAT


def memory_owner(name: str) -> str:
    """The owner of a rank's KV memory and host tier: its name in the first seat, because both seats use one memory in turn."""
    return name.removesuffix(seat_of(name)) if seat_of(name) != FIRST_SEAT else name


def weights_owner(name: str) -> str:
    """The owner of a rank's finished weights in a vault. It differs from the owner of the KV memory, which is dropped after a
    suspect death."""
    return memory_owner(name) + " weights"


def mint_request_id() -> str:
    """A new request id: 96 random bits, so that ids of different gateways and clients never collide."""
    return "req-" + secrets.token_hex(12)


def seed_of(request: str) -> int:
    """The seed of a request whose client names none, derived from its id, so that a repeated request gets the same seed.

    63 bits: it must fit a signed 64-bit integer on every device.
    """
    return int.from_bytes(blake2b(request.encode(), digest_size=8).digest(), "little") >> 1


@lru_cache
def boot_id() -> str:
    """The id of the machine's present boot, which tells it from all others; "" where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
