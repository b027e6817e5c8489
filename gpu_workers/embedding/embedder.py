"""The process that computes embeddings: mail and heartbeats on the event loop, the model in a thread.

        gateways                     this process                          supervisor
        --------                     ------------                          ----------
        Embed            ----->      waits; what waits is computed         Ready, Progress
        Embedded         <-----      together, in the order of arrival

It keeps nothing: a gateway sends again what was not answered when this process has died. An error of the model or of its device
ends the process, as it does that of a rank.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog
from prometheus_client import CollectorRegistry, Counter, ProcessCollector

from gpu_workers.embedding.batch_times import BatchTimes
from gpu_workers.embedding.model import TextEncoder
from gpu_workers.embedding.sentence_files import SENTENCE_FILES
from gpu_workers.embedding.settings import EmbedderSettings, read_settings
from gpu_workers.large_pages import collapse_soon
from gpu_workers.model_store.config_keys import ModelConfigError
from gpu_workers.model_store.weight_files import WeightsError
from messages.child import Child, LifecycleEvents, SenderState
from messages.embedding import Embed, Embedded
from messages.errors import ConfigError, MailboxFull
from messages.lifecycle import lifecycle
from messages.lifecycle.model_digests import refuse_other_weights
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.metrics import take_snapshot
from messages.outcomes import ExitCode
from messages.transport.mailbox import Delivery, Mailbox, MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.arrays import float32s

LoadModel = Callable[[EmbedderSettings, BatchTimes], TextEncoder]

_WARM_UP_TOKENS = 8  # of each text of the warm-up; its batches have one text, and then twice as many each time
_WARM_UP_S = 0.1  # no batch follows on one that takes so long
_WARM_UP_TEXTS = 256


def load_model(settings: EmbedderSettings, times: BatchTimes) -> TextEncoder:
    """The model that the settings name, after a warm-up that has told `times` how long batches take. Called in the thread,
    because importing torch takes seconds.

    Raises: ConfigError; torch's errors for a missing device."""
    import torch

    from gpu_workers.embedding.encoder import load_encoder

    torch.set_num_threads(settings.threads or len(os.sched_getaffinity(0)))
    try:
        refuse_other_weights(settings.model_folder, settings.model_digests, SENTENCE_FILES)
        encoder = load_encoder(Path(settings.model_folder), settings)
        refuse_other_weights(settings.model_folder, settings.model_digests, SENTENCE_FILES)  # as in the ranks
    except (ModelConfigError, WeightsError) as error:
        raise ConfigError(f"embedding_model: {error}") from None
    warm_up(encoder, times)
    return encoder


def warm_up(model: TextEncoder, times: BatchTimes) -> None:
    """Compute batches of growing size, each twice, until one takes long."""
    n_texts, took_s = 1, 0.0
    while n_texts <= _WARM_UP_TEXTS and took_s < _WARM_UP_S:
        texts = [np.zeros(_WARM_UP_TOKENS, np.int32)] * n_texts
        for _ in range(2):
            began_s = times.now_s()
            model.embed(texts)
            took_s = times.now_s() - began_s
            times.add(texts, took_s)
        n_texts *= 2


@dataclass(frozen=True)
class _Waiting:
    """Texts that came and are not computed yet."""

    delivery: Delivery
    message: Embed


class Embedder(LifecycleEvents):
    """The actor, from Hello to the end of its process."""

    def __init__(self, spec: SpawnSpec, make_mailbox: MailboxFactory = ZmqMailbox, load: LoadModel = load_model) -> None:
        self.settings = read_settings(spec.settings)
        self.log = structlog.get_logger().bind(actor=spec.name, incarnation=spec.incarnation)
        self.mailbox: Mailbox = make_mailbox(spec.name, spec.incarnation, spec.endpoint)
        self.child = Child(spec, self.mailbox, self)
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._texts = Counter("tardigrade_embedder_texts", "Texts that have a vector now", registry=self.registry)
        self._tokens = Counter("tardigrade_embedder_tokens", "Tokens of these texts", registry=self.registry)
        self._load = load
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        self._waiting: deque[_Waiting] = deque()
        self._changed = asyncio.Event()
        self._times = BatchTimes(self.settings.least_hang_s, on_cores=self.settings.device == "cpu")
        self._n_batches, self._n_texts, self._began_s, self._limit_s = 0, 0, 0.0, 0.0

    async def run(self) -> int:
        """Run until Stop or a fault; returns the exit status."""
        self.child.hello()
        work = asyncio.create_task(self._work())
        mail = asyncio.create_task(self._read_mail())
        try:
            await asyncio.wait((work, mail), return_when=asyncio.FIRST_COMPLETED)
            for doing, task in (("embed", work), ("mail", mail)):
                if task.done() and (error := task.exception()) is not None:
                    self.log.error("embedder failed", doing=doing, exc_info=error)
                    return self.child.fault(doing, error)
            self.child.stopped()
            return ExitCode.DONE
        finally:
            work.cancel()
            mail.cancel()
            self._thread.shutdown(wait=False, cancel_futures=True)
            await self.mailbox.close()

    async def _read_mail(self) -> None:
        while not self.child.is_stopping:
            for delivery in self.child.filter_lifecycle(await self.mailbox.wait_mail()):
                if isinstance(delivery.message, Embed):
                    self._waiting.append(_Waiting(delivery, delivery.message))
                    self._changed.set()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        self.child.loading("embedding model", 0.0)
        model = await loop.run_in_executor(self._thread, self._load, self.settings, self._times)
        self.child.ready({"model": self.settings.model_folder, "dimensions": str(model.dimensions)})
        while True:
            await self._changed.wait()
            self._changed.clear()
            while batch := self._take():
                texts = [text for one in batch for text in _texts_of(one.message)]
                self._began_s, self._limit_s = time.monotonic(), self._times.limit_s(texts)
                began_s = self._times.now_s()
                vectors = await loop.run_in_executor(self._thread, model.embed, texts)
                self._times.add(texts, self._times.now_s() - began_s)
                self._answer(batch, vectors)

    def _take(self) -> list[_Waiting]:
        """The next messages, as many as one batch has room for. Those of dead gateways are dropped; those of gateways that the
        supervisor has not announced yet wait."""
        taken: list[_Waiting] = []
        kept: deque[_Waiting] = deque()
        n_tokens = 0
        while self._waiting and (not taken or n_tokens + len(self._waiting[0].message.ids) <= self.settings.batch_tokens):
            one = self._waiting.popleft()
            state = self.child.sender_state(one.delivery)
            if state is SenderState.ALIVE:
                taken.append(one)
                n_tokens += len(one.message.ids)
            elif state is SenderState.UNANNOUNCED:
                kept.append(one)
        self._waiting.extendleft(reversed(kept))
        return taken

    def _answer(self, batch: list[_Waiting], vectors: np.ndarray) -> None:
        """Send each gateway the vectors of its texts. One that has died meanwhile does not wait for them."""
        first = 0
        for one in batch:
            n_texts = len(one.message.counts)
            part, first = vectors[first : first + n_texts], first + n_texts
            self._texts.inc(n_texts)
            self._tokens.inc(len(one.message.ids))
            if self.child.sender_state(one.delivery) is SenderState.ALIVE:
                try:
                    self.mailbox.send(
                        one.delivery.sender, Embedded(group=one.message.group, vectors=float32s(part.reshape(-1)))
                    )
                except MailboxFull as error:  # it has not read hundreds of answers, and would wait for this one for ever
                    self.log.warning("vectors could not be sent", gateway=one.delivery.sender, reason=str(error))
        self._n_batches, self._n_texts, self._began_s = self._n_batches + 1, self._n_texts + len(vectors), 0.0

    # -- lifecycle events (messages.child.LifecycleEvents) -----------------------------------------------------------------

    def peer_up(self, peer: lifecycle.Peer) -> None:
        """Texts of this gateway may be waiting for its announcement."""
        self._changed.set()

    def peer_down(self, name: str, incarnation: int) -> None:
        """Nothing to do: texts of a dead gateway are dropped when their turn comes."""

    def drain(self, deadline_s: float) -> None:
        """Report drained at once: gateways, which drain first, wait for their texts."""
        self.child.drained()

    def abandoned(self) -> None:
        """No supervisor came back in time: end at once. The gateways end as well."""
        self.log.error("no supervisor came back in time: ending")
        os._exit(ExitCode.DONE)

    def beat(self, with_metrics: bool) -> lifecycle.Progress:
        """The progress of this process, with its metrics if asked for."""
        return lifecycle.Progress(
            steps=self._n_batches,
            busy_s=time.monotonic() - self._began_s if self._began_s else 0.0,
            limit_s=self._limit_s if self._began_s else 0.0,
            statistics={"texts": float(self._n_texts), "waiting": float(len(self._waiting))},
            metrics=take_snapshot(self.registry) if with_metrics else [],
        )


def _texts_of(message: Embed) -> list[np.ndarray]:
    """The token ids of each text, int32 views of the message. Raises: ValueError for counts that do not fit."""
    ends = np.cumsum(message.counts)
    if not len(ends) or ends[-1] != len(message.ids) or message.counts.min() < 1:
        raise ValueError(
            f"counts: expected texts of one token or more, {len(message.ids)} together, got {message.counts.tolist()}"
        )
    return np.split(message.ids, ends[:-1])


def _load_for_process(settings: EmbedderSettings, times: BatchTimes) -> TextEncoder:
    """As `load_model`, for a process that does nothing else: soon after, its memory has large pages."""
    model = load_model(settings, times)
    collapse_soon()
    return model


async def run(spec: SpawnSpec) -> int:
    """Run one incarnation of the embedder; returns the exit status."""
    return await Embedder(spec, load=_load_for_process).run()
