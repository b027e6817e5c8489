"""Examples of the messages in which a scheduler tells of its replica."""

from __future__ import annotations

from messages.generation.recall import Recall
from messages.generation.replica_load import DegradationLevel, ReplicaLoad
from messages.generation.replica_state import ReplicaCondition, ReplicaState, Suspect
from messages.generation.sequences import Suspicion
from messages.lifecycle.cordon import Cordon, Cordons, CordonWanted
from messages.wire.arrays import int64s
from messages.wire.message import Message

REPLICA_MESSAGES: tuple[Message, ...] = (
    Recall(attempts=int64s([5, 6])),
    Cordons(cordons=[Cordon(replica=1, is_draining=True, end_s=12.5)]),
    CordonWanted(reply_to="ipc:///run/t/operator-9", replica=1, is_cordoned=True, is_draining=True, deadline_s=30.0),
    ReplicaState(
        condition=ReplicaCondition.DOWN,
        since_s=0.5,
        suspects=[Suspect(attempt=5, suspicion=Suspicion(deaths=1, certain=0, reach=4, passed=0))],
    ),
    ReplicaLoad(
        number=3,
        waiting=2,
        running=1,
        waiting_tokens=300,
        running_tokens=40,
        pages_used=5,
        pages=64,
        prefill_rate=1000.5,
        decode_rate=20.25,
        level=DegradationLevel.NO_DRAFTS,
        token_s=0.001,
        pair_s=0.00001,
        token_bytes=46_080,
    ),
)
