"""The configuration and the facts of a server as if the fallback model were its only one, so that the tree makes the groups of
the fallback model by the same functions as those of the main one."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from messages.ids import REPLICAS_OF_A_MODEL
from supervisor.config.server_config import ServerConfig
from supervisor.placement.fallback_room import worker_of
from supervisor.placement.placement import Placement
from supervisor.policy.child_spec import Group, Unit
from supervisor.start_facts import FallbackFacts, StartFacts

FALLBACK_REPLICA = REPLICAS_OF_A_MODEL  # the first of model 1


def config_of(config: ServerConfig) -> ServerConfig:
    """The configuration of a server of the fallback model alone."""
    return msgspec.structs.replace(
        config,
        model=config.fallback_model,
        model_name=config.fallback.model_name,
        max_length=config.fallback.max_length,
        speculate=False,
        vault=False,
        standby=False,
        worker=worker_of(config),
    )


def facts_of(facts: StartFacts, model: FallbackFacts) -> StartFacts:
    """The facts of a server of the fallback model alone."""
    placement = Placement("cpu", (), 1, 1, model.dtype, quantization=model.quantization)
    own = {
        "model_setting": model.folder,
        "model_name": model.name,
        "model_length": model.max_length,
        "model_digests": model.digests,
    }
    return replace(facts, placement=placement, fallback=None, **own)


def as_fallback(group: Group) -> Group:
    """A group of the fallback model, without which the server serves. It never stands in for a replica of the main model."""
    return replace(group, unit=Unit("fallback", 0), is_optional=True)
