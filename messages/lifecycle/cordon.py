"""Replicas that an operator has taken out of use, for a while."""

from __future__ import annotations

from typing import Annotated

import msgspec

from messages.wire.message import Count, Message, Part, ShortText

MAX_CORDONS = 1024


class Cordon(Part, frozen=True):
    """A replica that gets no new sequences.

    `is_draining`: those that wait there go to other replicas, and those that run may end there until `end_s`, by the monotonic
    clock, which all processes of one boot share; then they go to other replicas too.
    """

    replica: Count
    is_draining: bool = False
    end_s: float = 0.0


class Cordons(Message, frozen=True):
    """All replicas that are cordoned now, sent to gateways when that changes. Each child gets them with its Welcome too."""

    cordons: Annotated[list[Cordon], msgspec.Meta(max_length=MAX_CORDONS)]


class CordonWanted(Message, frozen=True):
    """An operator takes a replica out of use, or back into use.

    `is_draining`, `deadline_s`: what is there leaves it, what runs after `deadline_s` seconds at the latest.
    """

    reply_to: ShortText
    replica: Count
    is_cordoned: bool
    is_draining: bool = False
    deadline_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
