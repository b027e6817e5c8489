"""The gateway actor: connects clients, journal and schedulers. It passes messages on; the packages beside it do the work.

HTTP (uvicorn on the inherited socket) --+
                                         +--> admission --> request manager <--> journal
ZeroMQ (a public ROUTER) ----------------+                        |
                                                             dispatcher --> schedulers, cache directory
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from actors.actor import Actor, Handler
from actors.gateway.access.gateway_access import GatewayAccess
from actors.gateway.admission.admission import Admission
from actors.gateway.admission.body_budget import BodyBudget
from actors.gateway.admission.model_choice import choice_of
from actors.gateway.admission.similar_question import SimilarQuestions
from actors.gateway.admission.spec_builder import SpecBuilder
from actors.gateway.bodies.large_bodies import BodyReader
from actors.gateway.cache_reset.cache_reset import CacheReset
from actors.gateway.cache_reset.page_resets import PageResets
from actors.gateway.custody.gateway_custody import GatewayCustody
from actors.gateway.dispatch.post import Post
from actors.gateway.embeddings.dispatcher import EmbeddingDispatcher
from actors.gateway.embeddings.embeddings import Embeddings, load_embedding_text
from actors.gateway.embeddings.question_vectors import similar_cache_of
from actors.gateway.health import Health
from actors.gateway.http.endpoint import Services, Status
from actors.gateway.journal.journal import Journal
from actors.gateway.lifecycle.draining import Draining
from actors.gateway.lifecycle.recovery import take_over_all
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.metrics import GatewayMetrics
from actors.gateway.models.served_models import load_models
from actors.gateway.operator_commands import OperatorCommands
from actors.gateway.other_gateways.owners import Owners
from actors.gateway.page.live_page import OwnGateway, live_page_of
from actors.gateway.servers import GatewayServers
from actors.gateway.settings import read_settings
from actors.gateway.similar_answers.similar_queries import SimilarQueries
from actors.gateway.tracing.begin import begin_tracing, stop_tracing
from actors.gateway.tree_status import SHARED_S, TreeStatus
from actors.gateway.vllm_metrics import VllmNames
from messages import embedding
from messages.access.allowances import AllowanceTaken, UsageNoted
from messages.caches import prefixes
from messages.caches.equal import AnswersForgotten, AnswersKept, ForgetAnswers
from messages.caches.similar import SimilarFound
from messages.generation.replica_load import ReplicaLoad
from messages.generation.replica_state import ReplicaState
from messages.generation.sequences import Holding, Refused, Taken, Tokens
from messages.ids import replica_of, role_of
from messages.lifecycle import lifecycle
from messages.lifecycle.cache_figures import cache_figures
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.lifecycle.tree import CommandTaken, StatusReport
from messages.transport.mailbox import Delivery, MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message


class GatewayActor(Actor, Post, Status):
    """One gateway: an actor whose `start` opens the journal, then the HTTP and the ZeroMQ server."""

    def __init__(self, spawn_spec: SpawnSpec, make_mailbox: MailboxFactory = ZmqMailbox) -> None:
        super().__init__(spawn_spec, make_mailbox)
        self.settings = settings = read_settings(spawn_spec.settings)
        self.metrics = GatewayMetrics(self.registry)
        self.bodies = BodyBudget(settings.max_body_bytes, settings.max_bodies_bytes, are_told_apart=settings.names_callers)
        self.tree = TreeStatus(self.mailbox.endpoint, self.child.report)
        self.commands = OperatorCommands(self.mailbox.endpoint, self.child.report)
        self.of_page = OwnGateway(spawn_spec, self.tree, self.registry, self.statistics)
        custodian = self.settings.custodian_socket
        self.custody = GatewayCustody(spawn_spec.name, Path(custodian), self.later) if custodian else None
        self.servers = GatewayServers(self.settings, self.custody, self.metrics.count_cut, lambda e: self.fail("servers", e))
        self.access = GatewayAccess(self.settings, self, self.registry)
        self.draining: Draining | None = None
        self.tracing = None
        self._manager: RequestManager | None = None
        self._health: Health | None = None
        self.embedding_dispatcher = EmbeddingDispatcher(self)
        self.similar_queries = SimilarQueries(self)
        self.page_resets = PageResets(self, self.settings.schedulers, has_answers=self.settings.answer_cache != "off")

    @property
    def manager(self) -> RequestManager:
        """All requests of this gateway. They exist once its journal is replayed; must not be read before."""
        assert self._manager is not None, "the gateway has replayed its journal"
        return self._manager

    # -- start and stop -------------------------------------------------------------------------------------------

    async def start(self) -> dict[str, str]:
        """Load the tokenizer, replay the journal, then listen for clients."""
        settings, loop = self.settings, asyncio.get_running_loop()
        self.child.loading("tokenizer", 0.0)
        self.models = await loop.run_in_executor(None, load_models, settings)
        text = await loop.run_in_executor(None, load_embedding_text, settings) if settings.embedding_model else None
        self.child.loading("journal", 0.5)
        self.journal = Journal.of(settings)
        recovered, _ = await asyncio.gather(loop.run_in_executor(None, self.journal.open), self.servers.claim())
        self.journal.start()
        self.journal.on_commit, self.journal.on_failure = self.metrics.commit_s.observe, partial(self.fail, "journal")
        incarnation, metrics, embedder = self.spawn_spec.incarnation, self.metrics, self.embedding_dispatcher
        similar = similar_cache_of(settings, text, self, embedder, self.similar_queries, self.registry)
        manager = RequestManager(settings, incarnation, self, self.journal, self.models, metrics, similar)
        self._manager, questions = manager, None if similar is None else SimilarQuestions(settings)
        manager.equals.register_metrics(self.registry)
        self.child.on_cordons = manager.dispatcher.set_cordons
        self.tracing = begin_tracing(settings, self.spawn_spec.name, incarnation, self, manager, self.registry)
        self._health = Health(settings.model_name, settings.stalled_s, self, manager, self.journal)
        claimed, now_s = self.servers.claimed_requests, self.now_s()
        self.servers.hold_batches(manager.finished.retained)
        resumed = take_over_all(manager, self.journal, recovered, self.models, now_s, incarnation, claimed)
        self.servers.remember_requests(manager.unfinished.find)
        manager.gate.was_ready = resumed > 0 or incarnation > 1  # after a restart schedulers reconnect: refuse nobody
        manager.start()
        builder = SpecBuilder(settings, self.models.main.text, self.models.main.identity.fingerprint)
        access, choice = self.access.begin(manager), choice_of(builder, manager, self)
        trace = None if self.tracing is None else self.tracing.embedded
        embeddings = None if text is None else Embeddings(settings, text, embedder, manager, access.limits, trace)
        admission = self.admission = Admission(builder, self.bodies, manager, self.wall_s, questions, access.limits, choice)
        owners = Owners(replica_of(self.spawn_spec.name), settings.http_sockets, have_changed=settings.have_gateways_changed)
        reader, started_s = BodyReader(settings.max_length, settings.max_batch), int(self.wall_s())
        caches = self.caches = CacheReset(manager.equals.kept, self.page_resets, owners, self.wall_s)
        live = live_page_of(self.of_page, manager, owners.other_sockets, has_keys=access.keys is not None)
        about = (self, reader, owners, started_s, caches, live, self.commands)
        services = Services(settings, self.models, admission, manager, *about, embeddings, access.keys)
        address = await self.servers.open(services, incarnation, self.spawn_spec.descriptors, waits=not resumed)
        return {"http": address, "zeromq": settings.zeromq_endpoint, "resumed": str(resumed), "model": settings.model_name}

    async def stop(self) -> None:
        """Close the sockets, then the journal."""
        if self.draining is not None:
            self.draining.stop()
        self.access.close()
        await self.servers.close()
        if self._manager is not None:
            self.manager.stop()
            await self.journal.close()
            await stop_tracing(self.tracing)

    async def hand_over(self) -> None:
        if not await self.servers.leave():
            await self.stop()

    def drain(self, deadline_s: float) -> None:
        """Accept nothing new; drained when every sequence has ended and its client has read the ending."""
        if self._manager is None:
            return self.child.drained()
        if self.draining is not None:
            self.draining.stop()
        self.draining = Draining(
            self.manager, self.servers.unread_by_connection, self,
            handover_s=self.settings.handover_s, deadline_s=deadline_s, on_drained=self.child.drained,
        )  # fmt: skip
        self.draining.poll()

    def peer_up(self, peer: lifecycle.Peer) -> None:
        self.access.peer_up(peer.name)
        if role_of(peer.name) == "scheduler" and self._manager is not None:
            self.manager.scheduler_up(peer.name)
        if role_of(peer.name) == "gateway" and self._manager is not None:
            self.manager.gateway_up()
        if role_of(peer.name) == "cache_directory" and self._manager is not None:
            self.manager.equals.directory_up()
        if role_of(peer.name) == "embedder":
            self.embedding_dispatcher.embedder_up()
        if role_of(peer.name) == "custodian" and self.custody is not None:
            self.custody.open_now()

    def peer_down(self, name: str, incarnation: int) -> None:
        self.access.peer_down(name)
        if role_of(name) == "scheduler" and self._manager is not None:
            self.manager.dispatcher.scheduler_down(name, self.child.deaths[name].cause)
        if role_of(name) == "embedder":
            self.embedding_dispatcher.embedder_down(self.child.deaths[name].cause)
        if role_of(name) == "cache_directory":
            self.similar_queries.directory_down()

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {
            Tokens: lambda delivery, message: self.manager.on_tokens(delivery.sender, delivery.sender_incarnation, message),
            Holding: self._on_holding,
            Taken: lambda delivery, message: self.manager.on_taken(message),
            Refused: lambda delivery, message: self.manager.dispatcher.on_refused(message),
            ReplicaState: lambda delivery, message: self.manager.dispatcher.on_state(delivery.sender, message),
            ReplicaLoad: lambda delivery, message: self.manager.dispatcher.loads.note(delivery.sender, message),
            prefixes.PrefixFound: lambda delivery, message: self.manager.dispatcher.on_prefix_found(message),
            prefixes.PagesForgotten: lambda delivery, message: self.page_resets.answered(delivery.sender, message),
            AnswersKept: lambda delivery, message: self.manager.equals.heard(message),
            ForgetAnswers: lambda delivery, message: self.caches.directory_forgets(message),
            SimilarFound: lambda delivery, message: self.similar_queries.answered(message),
            AnswersForgotten: lambda delivery, message: self.page_resets.answers_forgotten(delivery.sender, message),
            embedding.Embedded: lambda delivery, message: self.embedding_dispatcher.on_embedded(message),
            StatusReport: lambda delivery, message: self.tree.on_report(message),
            CommandTaken: lambda delivery, message: self.commands.answered(message),
            AllowanceTaken: lambda delivery, message: self.access.answered(message),
            UsageNoted: lambda delivery, message: self.access.noted(message),
        }

    def _on_holding(self, delivery: Delivery, message: Holding) -> None:
        self.manager.on_holding(delivery.sender, message)
        if self._health is not None:
            self._health.on_holding(delivery.sender, message)

    # -- Post: what the request manager needs from its actor ------------------------------------------------------

    def living(self, role: str) -> list[str]:
        """Names of the living peers of a role."""
        return self.child.names_of(role)

    def incarnation_of(self, name: str) -> int:
        """The incarnation of a living peer; -1 if it is not living."""
        peer = self.child.peers.get(name)
        return -1 if peer is None else peer.incarnation

    def now_s(self) -> float:
        """The monotonic clock."""
        return time.monotonic()

    def wall_s(self) -> float:
        """Unix time."""
        return time.time()

    def later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `callback` after `delay_s`."""
        return asyncio.get_running_loop().call_later(delay_s, callback)

    # -- Status: health and statistics ----------------------------------------------------------------------------

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Returns whether requests are served now, and the JSON of /v1/health."""
        assert self._health is not None, "HTTP is served after the start"
        return self._health.report()

    def tick(self) -> None:
        if self._health is not None:
            self._health.update()
        self.access.refresh()

    def statistics(self) -> dict[str, float]:
        manager, metrics = self._manager, self.metrics
        if manager is None:
            return {}
        metrics.active.set(manager.gate.n_active)
        metrics.waiting.set(manager.dispatcher.n_waiting)
        metrics.connections.set(self.servers.n_http_connections)
        metrics.set_journal(self.journal.is_healthy, self.journal.state.waiting_bytes)
        metrics.count_attempts(manager.dispatcher.resubmissions, manager.dispatcher.failover.n_moved)
        return {
            **metrics.statistics(),
            **manager.equals.statistics(),
            **metrics.overload.show(manager.gate.queued, manager.gate.outlook),
            "active": manager.gate.n_active,
            **manager.dispatcher.statistics(),
            **self.access.statistics(),
            "commits": self.journal.commits,
            "custodians": 0 if self.custody is None else self.custody.n_connected,
        }

    def progress(self) -> tuple[int, float]:
        return (self.journal.commits if self._manager is not None else 0), 0.0

    async def summary(self) -> dict[str, Any]:
        """The JSON of /v1/metrics: the latencies of this gateway alone, its name, and every actor's statistics."""
        report = await self.tree.wait_report()
        actors = {} if report is None else {child.name: child.statistics for child in report.children}
        return {
            "gateway": self.spawn_spec.name,
            "model": self.settings.model_name,
            **self.statistics(),
            **self.metrics.totals(),
            **self.metrics.latencies(),
            "caches": cache_figures(actors.items()),
            "actors": actors,
        }

    async def exposition(self) -> bytes:
        """The Prometheus text of the whole server."""
        self.statistics()
        await self.tree.wait_report(SHARED_S)
        vllm = VllmNames(lambda n: self.models.at(n).name, self.settings.schedulers) if self.settings.vllm_metrics else None
        return self.tree.render(self.spawn_spec.name, self.registry, vllm)


async def run(spawn_spec: SpawnSpec) -> int:
    """Run one incarnation of a gateway; returns the exit status."""
    exit_status = await (actor := GatewayActor(spawn_spec)).run()
    if actor.child.is_handing_over:
        os._exit(exit_status)  # the end of the loop would close the connections that the next incarnation goes on with
    return exit_status
