"""Distinct names for look-alike identifiers, and the one place where they are minted. Nothing else lives here."""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import NewType

RequestId = NewType("RequestId", str)  # chosen by the client or minted by a gateway; the idempotency key
ActorName = NewType("ActorName", str)  # "gateway/0", "worker/0.1" (replica.rank), "supervisor/0"
Incarnation = NewType("Incarnation", int)  # one life of one actor; grows with every restart
Attempt = NewType("Attempt", int)  # one submission of one sequence to one scheduler; unique per gateway
StepNumber = NewType("StepNumber", int)  # one forward pass of one gang, counted by its scheduler
PageId = NewType("PageId", int)  # index of a KV page in a gang's memory
PageHash = NewType("PageHash", int)  # unsigned 64-bit chained content hash of a full page

SUPERVISOR = ActorName("supervisor/0")  # there is one for each server
ROLES = (SUPERVISOR.partition("/")[0], "cache_directory", "speculation", "worker", "scheduler", "gateway", "operator")


def actor_name(role: str, index: int, rank: int | None = None) -> ActorName:
    """`actor_name("worker", 0, 1)` is "worker/0.1": rank 1 of replica 0's gang."""
    if role not in ROLES:
        raise ValueError(f"role: expected one of {', '.join(ROLES)}, got {role!r}")
    return ActorName(f"{role}/{index}" if rank is None else f"{role}/{index}.{rank}")


def role_of(name: str) -> str:
    """The role part of an actor's name."""
    return name.partition("/")[0]


def replica_of(name: str) -> int:
    """The index of an actor's name: the replica of a worker or scheduler, the number of a gateway."""
    return int(name.partition("/")[2].partition(".")[0])


def rank_of(name: str) -> int:
    """The tensor-parallel rank in a worker's name; 0 for every other actor."""
    return int(name.partition(".")[2] or 0)


def mint_request_id() -> RequestId:
    """A fresh request id: 96 random bits, so that ids of different gateways and clients never meet."""
    return RequestId("req-" + secrets.token_hex(12))


def mint_seed() -> int:
    """A fresh sampling seed (63 bits: it must fit a signed 64-bit integer on every device)."""
    return secrets.randbits(63)


def seed_of(request: str) -> int:
    """The seed of a request whose client names none: the same id means the same request, however often it is said."""
    return int.from_bytes(blake2b(request.encode(), digest_size=8).digest(), "little") >> 1
