"""Which role may send which message to which role.

This table is the architecture: mailboxes check it, a test compares it with the actors' handlers, and the message table of
docs/architecture.md is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from messages import drafts, embedding, steps
from messages.access import allowances
from messages.caches import disk_moves, equal, exchange, page_moves, prefixes, similar
from messages.generation.recall import Recall
from messages.generation.replica_load import ReplicaLoad
from messages.generation.replica_state import ReplicaState
from messages.generation.sequences import Ack, Cancel, Holding, Refused, Submit, Taken, Tokens
from messages.ids import SUPERVISOR, role_of
from messages.lifecycle import lifecycle
from messages.lifecycle.cordon import Cordons, CordonWanted
from messages.lifecycle.tree import (
    CommandTaken,
    DrainWanted,
    OrderTaken,
    RestartWanted,
    ServeWanted,
    StatusReport,
    StatusWanted,
    StopWanted,
)
from messages.wire.message import Message

CHILDREN = (
    "custodian", "accounts", "gpu_monitor", "cache_directory", "speculation", "vault", "embedder", "worker", "scheduler",
    "gateway",
)  # fmt: skip


@dataclass(frozen=True)
class Route:
    """One kind of message: the roles that may send it, the roles that receive it, the message that answers it ("-": none)."""

    kind: type[Message]
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    answered_by: str = "-"


_S = (role_of(SUPERVISOR),)
_ASKERS = ("gateway", "operator")

ROUTES: tuple[Route, ...] = (
    Route(lifecycle.Hello, CHILDREN, _S, "Welcome"),
    Route(lifecycle.Adopt, _S, CHILDREN, "Hello"),
    Route(lifecycle.Welcome, _S, CHILDREN, "Ready"),
    Route(lifecycle.Loading, CHILDREN, _S),
    Route(lifecycle.Ready, CHILDREN, _S, "PeerUp to all"),
    Route(lifecycle.PeerUp, _S, CHILDREN),
    Route(lifecycle.PeerDown, _S, CHILDREN),
    Route(Cordons, _S, ("gateway",)),
    Route(lifecycle.RankEnding, _S, ("scheduler",)),
    Route(lifecycle.Progress, CHILDREN, _S),
    Route(lifecycle.Drain, _S, CHILDREN, "Drained"),
    Route(lifecycle.Drained, CHILDREN, _S),
    Route(lifecycle.Stop, _S, CHILDREN, "Stopped"),
    Route(lifecycle.Stopped, CHILDREN, _S),
    Route(lifecycle.Fault, CHILDREN, _S),
    Route(StatusWanted, _ASKERS, _S, "StatusReport"),
    Route(StatusReport, _S, _ASKERS),
    Route(DrainWanted, _ASKERS, _S, "CommandTaken"),
    Route(ServeWanted, _ASKERS, _S, "CommandTaken"),
    Route(StopWanted, ("operator",), _S, "CommandTaken"),
    Route(RestartWanted, ("operator",), _S, "CommandTaken"),
    Route(CordonWanted, _ASKERS, _S, "CommandTaken"),
    Route(CommandTaken, _S, _ASKERS),
    Route(OrderTaken, _S, ("operator",)),
    Route(prefixes.FindPrefix, ("gateway",), ("cache_directory",), "PrefixFound"),
    Route(prefixes.PrefixFound, ("cache_directory",), ("gateway",)),
    Route(Submit, ("gateway",), ("scheduler",), "Taken or Refused"),
    Route(Taken, ("scheduler",), ("gateway",)),
    Route(Refused, ("scheduler",), ("gateway",)),
    Route(Recall, ("gateway",), ("scheduler",), "Refused for those that wait"),
    Route(Tokens, ("scheduler",), ("gateway",), "Ack"),
    Route(Holding, ("scheduler",), ("gateway",), "Ack"),
    Route(Ack, ("gateway",), ("scheduler",)),
    Route(Cancel, ("gateway",), ("scheduler",), "an Ending in Tokens"),
    Route(ReplicaState, ("scheduler",), ("gateway",)),
    Route(ReplicaLoad, ("scheduler",), ("gateway",)),
    Route(steps.Reset, ("scheduler",), ("worker",), "Capacity from one rank"),
    Route(steps.Capacity, ("worker",), ("scheduler",)),
    Route(steps.Plan, ("scheduler",), ("worker",), "Result or StepFailed from one rank"),
    Route(steps.Result, ("worker",), ("scheduler",)),
    Route(steps.StepFailed, ("worker",), ("scheduler",)),
    Route(steps.Idle, ("worker",), ("scheduler",)),
    Route(steps.PrepareGrammar, ("scheduler",), ("worker",), "GrammarPrepared from each rank"),
    Route(steps.GrammarPrepared, ("worker",), ("scheduler",)),
    Route(page_moves.MovePages, ("scheduler",), ("worker",), "PagesMoved from each rank"),
    Route(page_moves.PagesMoved, ("worker",), ("scheduler",)),
    Route(page_moves.ReturnPages, ("scheduler",), ("worker",)),
    Route(page_moves.ReturnPlaces, ("scheduler",), ("worker",)),
    Route(disk_moves.MoveDiskPages, ("scheduler",), ("worker",), "DiskPagesMoved from each rank, unless it only writes"),
    Route(disk_moves.DiskPagesMoved, ("worker",), ("scheduler",)),
    Route(disk_moves.FindDiskPages, ("scheduler",), ("worker",), "DiskPagesFound from each rank"),
    Route(disk_moves.DiskPagesFound, ("worker",), ("scheduler",)),
    Route(exchange.PagesWanted, ("scheduler",), ("scheduler",), "PagesLent"),
    Route(exchange.PagesLent, ("scheduler",), ("scheduler",)),
    Route(exchange.ExchangePages, ("scheduler",), ("worker",), "PagesExchanged from each rank"),
    Route(exchange.PagesExchanged, ("worker",), ("scheduler",)),
    Route(prefixes.PagesSealed, ("scheduler",), ("cache_directory",)),
    Route(prefixes.PagesDropped, ("scheduler",), ("cache_directory",)),
    Route(prefixes.InventoryWanted, ("cache_directory",), ("scheduler",), "PagesSealed with snapshot"),
    Route(prefixes.ForgetPages, ("gateway",), ("scheduler",), "PagesForgotten"),
    Route(prefixes.PagesForgotten, ("scheduler",), ("gateway",)),
    Route(drafts.Tails, ("scheduler",), ("speculation",), "Drafts, or nothing"),
    Route(drafts.Drafts, ("speculation",), ("scheduler",)),
    Route(similar.FindSimilar, ("gateway",), ("cache_directory",), "SimilarFound"),
    Route(similar.SimilarFound, ("cache_directory",), ("gateway",)),
    Route(similar.KeepSimilar, ("gateway",), ("cache_directory",)),
    Route(equal.AnswersKept, ("gateway", "cache_directory"), ("gateway", "cache_directory")),
    Route(
        equal.ForgetAnswers,
        ("gateway", "cache_directory"),
        ("gateway", "cache_directory"),
        "AnswersForgotten from the directory",
    ),
    Route(equal.AnswersForgotten, ("cache_directory",), ("gateway",)),
    Route(embedding.Embed, ("gateway",), ("embedder",), "Embedded"),
    Route(embedding.Embedded, ("embedder",), ("gateway",)),
    Route(allowances.TakeAllowance, ("gateway",), ("accounts",), "AllowanceTaken"),
    Route(allowances.AllowanceTaken, ("accounts",), ("gateway",)),
    Route(allowances.UsageTold, ("gateway",), ("accounts",), "UsageNoted, when it is on disk"),
    Route(allowances.UsageNoted, ("accounts",), ("gateway",)),
)

ROUTE_BY_KIND = {route.kind.__name__: route for route in ROUTES}
INTERNAL_KINDS = tuple(route.kind for route in ROUTES)


def is_allowed(kind: str, sender_role: str, receiver_role: str) -> bool:
    """True if a sender of this role may send this kind of message to a receiver of that role."""
    route = ROUTE_BY_KIND.get(kind)
    return route is not None and sender_role in route.senders and receiver_role in route.receivers


def received_by(role: str) -> frozenset[type[Message]]:
    """All kinds of messages that a role must handle."""
    return frozenset(route.kind for route in ROUTES if role in route.receivers)
