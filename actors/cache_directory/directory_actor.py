"""The cache directory: which scheduler has which pages, and the answers that gateways keep for equal and similar requests.

Of pages it keeps nothing on disk: it asks the schedulers again. Answers are in a file, where there are any.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np
from prometheus_client import Counter, Gauge

from actors.actor import Actor, Handler
from actors.cache_directory.answers.all_answers import AllAnswers
from actors.cache_directory.answers.kept_on_disk import KeptOnDisk
from actors.cache_directory.answers.sharing import AnswerSharing
from actors.cache_directory.answers.sharing_metrics import SharingMetrics
from actors.cache_directory.prefix_index import PrefixIndex, SnapshotRequests
from actors.cache_directory.settings import DirectorySettings
from actors.cache_directory.similar.similar_answers import SimilarAnswer, SimilarAnswers
from actors.cache_directory.similar.similar_metrics import SimilarMetrics
from actors.cache_directory.update_lag import UpdateLag
from actors.pages.answers.answer_cache import AnswerCache, age_s, forgetting_of
from actors.pages.prompt_start import START_BYTES
from messages.caches import equal, prefixes, similar
from messages.errors import MailboxFull, UnknownPeer
from messages.ids import replica_of, role_of
from messages.lifecycle import lifecycle
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.transport.mailbox import Delivery, MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message

_PATIENCE_S = 1.0  # much longer than a scheduler needs for an answer


class DirectoryActor(Actor):
    """The actor around a `PrefixIndex` with its `SnapshotRequests`, and `AllAnswers`. `now_s`: the monotonic clock;
    `wall_s`: Unix time."""

    def __init__(
        self,
        spawn_spec: SpawnSpec,
        make_mailbox: MailboxFactory = ZmqMailbox,
        now_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(spawn_spec, make_mailbox)
        settings = msgspec.json.decode(spawn_spec.settings, type=DirectorySettings)
        self._index = PrefixIndex(settings.max_hashes)
        self._snapshots = SnapshotRequests(_PATIENCE_S)
        self._now_s, self._wall_s = now_s, wall_s
        self._similar: SimilarAnswers | None = None  # None: none are kept
        if settings.keeps_similar:
            self._similar = SimilarAnswers(settings.similar_bytes, settings.similar_ttl_s, wall_s())
            self.registry.register(SimilarMetrics(self._similar))
        self._equal = AnswerCache(settings.answer_bytes, settings.answer_ttl_s, reset_s=wall_s())
        self._sharing = AnswerSharing(self._equal, self._send_now)
        self._on_disk: KeptOnDisk | None = None  # None: no answers are kept
        self._unused_file = "" if settings.keeps_answers else settings.answers_file
        if settings.keeps_answers:
            kept = AllAnswers(self._equal, self._similar)
            kept.on_restored = self._sharing.tell
            self._on_disk = KeptOnDisk(kept, Path(settings.answers_file), settings.answers_file_s, wall_s)
            self.registry.register(SharingMetrics(self._equal, self._sharing))
        self._n_hits = self._n_misses = 0
        queries = Counter("tardigrade_directory_queries", "FindPrefix answered", ["hit"], registry=self.registry)
        self._hits, self._misses = queries.labels(hit="yes"), queries.labels(hit="no")
        pages = Gauge(
            "tardigrade_directory_pages", "Pages in the index, each as often as schedulers have it", registry=self.registry
        )
        pages.set_function(self._index.__len__)
        size = Gauge("tardigrade_directory_bytes", "Memory of the index, estimated", registry=self.registry)
        size.set_function(lambda: self._index.n_bytes)
        self.lag = UpdateLag()
        self.registry.register(self.lag.seconds)
        self._gaps = Counter("tardigrade_directory_gaps", "Missed updates that needed a snapshot", registry=self.registry)

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {
            prefixes.PagesSealed: self.on_pages_sealed,
            prefixes.PagesDropped: self.on_pages_dropped,
            prefixes.FindPrefix: self.on_find_prefix,
            similar.FindSimilar: self.on_find_similar,
            similar.KeepSimilar: self.on_keep_similar,
            equal.AnswersKept: self.on_answers_kept,
            equal.ForgetAnswers: self.on_forget_answers,
        }

    async def start(self) -> dict[str, str]:
        """Read the answers that the one before has kept, or remove them where they are kept no more."""
        if self._unused_file:
            await asyncio.get_running_loop().run_in_executor(None, lambda: Path(self._unused_file).unlink(missing_ok=True))
        if self._on_disk is not None:
            await self._on_disk.start()
        return {}

    async def stop(self) -> None:
        if self._on_disk is not None:
            await self._on_disk.stop()

    def tick(self) -> None:
        if self._on_disk is not None:
            self._on_disk.tick()

    def on_pages_sealed(self, delivery: Delivery, message: prefixes.PagesSealed) -> None:
        """Pages have become reusable at a scheduler, or its snapshot has come."""
        if message.snapshot:
            self._snapshots.settle(delivery.sender)
            self._index.replace(delivery.sender, int(message.number), message.hashes.tolist())
            self.lag.applied(message.sent_s, self._now_s())
        else:
            self._update(delivery.sender, message, message.hashes.tolist(), [])

    def on_pages_dropped(self, delivery: Delivery, message: prefixes.PagesDropped) -> None:
        """Pages have been overwritten at a scheduler."""
        self._update(delivery.sender, message, [], message.hashes.tolist())

    def on_find_prefix(self, delivery: Delivery, message: prefixes.FindPrefix) -> None:
        """Answer at once with what is known."""
        found = self._index.match(message.hashes.tolist())
        self._n_hits += bool(found)
        self._n_misses += not found
        (self._hits if found else self._misses).inc()
        answer = prefixes.PrefixFound(
            query=message.query, replicas=[replica_of(name) for name in found], pages=list(found.values())
        )
        self._send_hint(delivery.sender, answer)

    def on_find_similar(self, delivery: Delivery, message: similar.FindSimilar) -> None:
        """Answer at once with the answer to the most similar question, if any."""
        found = None
        if self._similar is not None:
            found = self._similar.find(message.circle, message.vector, message.least, self._wall_s())
        answer = similar.SimilarFound(query=message.query)
        if found is not None:
            kept, similarity = found
            ids = np.frombuffer(kept.ids, "<i4")
            answer = similar.SimilarFound(
                query=message.query, has_answer=True, similarity=similarity, ids=ids, reason=kept.reason
            )
        self._send_hint(delivery.sender, answer)

    def on_keep_similar(self, delivery: Delivery, message: similar.KeepSimilar) -> None:
        """A gateway has an answer that may be given to similar questions."""
        if self._similar is None:
            return
        vector, start = message.vector.astype("<f2").tobytes(), message.start.tobytes()[:START_BYTES]
        ids, now_s = message.ids.tobytes(), self._wall_s()
        share = message.cache_share
        answer = SimilarAnswer(message.circle, vector, ids, message.reason, message.scope, start, now_s, share)
        self._similar.keep(answer, message.began_s)

    def on_answers_kept(self, delivery: Delivery, message: equal.AnswersKept) -> None:
        """A gateway keeps answers that others may get."""
        if self._on_disk is not None:
            self._sharing.heard(delivery.sender, message)

    def on_forget_answers(self, delivery: Delivery, message: equal.ForgetAnswers) -> None:
        """An operator wants answers forgotten. The other gateways are told on the way on which answers come to them, so that
        none comes behind; if one cannot be told now, there is no answer yet, and the question comes again."""
        wanted = forgetting_of(message)
        n_equal, n_similar = (0, 0) if self._on_disk is None else self._on_disk.forget(wanted)
        told = [self._send_now(name, message) for name in self._sharing.gateways if name != delivery.sender]
        if not all(told):
            return
        self._send_hint(delivery.sender, equal.AnswersForgotten(call=message.call, equal=n_equal, similar=n_similar))

    def peer_up(self, peer: lifecycle.Peer) -> None:
        if role_of(peer.name) == "gateway" and self._on_disk is not None:
            self._sharing.gateway_up(peer.name)

    def peer_down(self, name: str, incarnation: int) -> None:
        if role_of(name) == "scheduler":
            self._index.remove_scheduler(name)
            self._snapshots.settle(name)
        if role_of(name) == "gateway":
            self._sharing.gateway_down(name)

    def progress(self) -> tuple[int, float]:
        return self._n_hits + self._n_misses, 0.0

    def statistics(self) -> dict[str, float]:
        own = {"hashes": float(len(self._index)), "queries": float(self._n_hits + self._n_misses)}
        own |= {"prefix_hits": float(self._n_hits), "prefix_misses": float(self._n_misses)}
        own |= {"index_bytes": float(self._index.n_bytes)}
        if self._on_disk is not None:
            self._equal.drop_old(self._wall_s())
            own |= {"shared_answers": float(len(self._equal)), "shared_bytes": float(self._equal.n_bytes)}
            oldest_s = age_s(self._equal.oldest_s, self._wall_s())
            own |= {"shared_evicted": float(self._equal.n_evicted), "shared_oldest_s": oldest_s}
            own |= {"shared_hits": float(self._sharing.n_used), "shared_share_evicted": float(self._equal.n_share_evicted)}
        return own if self._similar is None else own | self._similar.statistics(self._wall_s())

    def _update(
        self, scheduler: str, message: prefixes.PagesSealed | prefixes.PagesDropped, sealed: list[int], dropped: list[int]
    ) -> None:
        if self._index.update(scheduler, int(message.number), sealed, dropped, in_tier=message.in_tier):
            self.lag.applied(message.sent_s, self._now_s())
        elif self._snapshots.want(scheduler):
            self._gaps.inc()

    def after_mail(self) -> None:
        """Ask for the snapshots that are missing; ask again for those that have not come in time."""
        for scheduler in self._snapshots.take_due(self._now_s()):
            self._send_hint(scheduler, prefixes.InventoryWanted())

    def _send_now(self, name: str, message: Message) -> bool:
        """Send a message; returns False if that cannot be done now."""
        try:
            self.send(name, message)
        except (MailboxFull, UnknownPeer):
            return False
        return True

    def _send_hint(self, name: str, message: Message) -> None:
        """Send a message that may be lost: no actor waits for it without a timeout."""
        try:
            self.send(name, message)
        except (MailboxFull, UnknownPeer) as error:
            self.log.warning("an optional message could not be sent", peer=name, kind=type(message).__name__, reason=str(error))


async def run(spawn_spec: SpawnSpec) -> int:
    """Run one incarnation of the cache directory; returns the exit status."""
    return await DirectoryActor(spawn_spec).run()
