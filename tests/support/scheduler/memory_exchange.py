"""What gangs in a `MemoryCluster` do in the exchange of pages: no vault, but the memory of each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_workers.hash_chain_engine import HashChainEngine
from gpu_workers.vault.exchange_end import DoneExchange
from gpu_workers.vault.exchange_places import ExchangePlaces, ForeignPlaces
from gpu_workers.vault.host_pages import PlaceArrays
from messages.caches.exchange import ExchangePages, PagesExchanged
from messages.wire.arrays import int32s


def exchange_of(engine: HashChainEngine, moves: ExchangePages, members: Mapping[str, Any], region: int) -> PagesExchanged:
    """Do these moves. members: of the cluster, with the gangs of other replicas; region: the number of the engine's places."""
    assert engine.exchange is not None
    lender = members.get(f"worker/{moves.lender}.0")
    foreign = None
    if lender is not None and [lender.memory_generation] == moves.regions.tolist():
        foreign = foreign_of(lender.engine, lender.memory_generation)
    done = engine.exchange.move(moves, foreign)
    assert isinstance(done, DoneExchange)
    return PagesExchanged(epoch=moves.epoch, number=moves.number, failed=int32s(done.failed), load_s=1e-6, region=region)


def foreign_of(engine: HashChainEngine, number: int) -> ForeignPlaces:
    """The places of an engine, as another one reads them."""
    own = places_of(engine)
    return ForeignPlaces(number, PlaceArrays(own._hashes, own._sums, own._places))


def places_of(engine: HashChainEngine) -> ExchangePlaces:
    """The places that an engine has for others."""
    assert isinstance(engine.exchange, ExchangePlaces)
    return engine.exchange
