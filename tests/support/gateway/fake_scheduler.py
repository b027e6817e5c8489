"""A scripted scheduler that answers with the hash-chain model's tokens. Tests decide when it sends them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from gpu_workers.hash_chain import hash_chain_tokens
from messages.caches.prefixes import ForgetPages, PagesForgotten
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs
from messages.generation.sequences import Ack, Cancel, Ending, Refused, Submit, Taken, Tokens, Work
from messages.outcomes import EndReason
from messages.wire.arrays import float32s, int32s, int64s
from tests.support.memory_cluster import MemoryCluster, ScriptedActor

VOCABULARY = 32_768


def oracle(prompt: list[int], n: int, seed: int = 0) -> list[int]:
    """The hash-chain model's `n` tokens after a prompt. Seed 0: greedy."""
    return hash_chain_tokens(prompt, n, seed, VOCABULARY)


def text_ids(text: str) -> list[int]:
    """The token ids of a text prompt under the hash-chain model."""
    return list(text.encode())


def ids_text(ids: list[int]) -> str:
    """The text of the hash-chain model's output tokens."""
    return "".join(f"{i} " for i in ids)


@dataclass
class Running:
    """One attempt: the tokens that are not sent yet, and the number of the first of them."""

    submit: Submit
    sender: str
    first: int
    rest: list[int]


class FakeScheduler(ScriptedActor):
    """Answers Submit with Taken, then sends the tokens of `output_of(submit, n)`, by default the oracle's.

    `is_automatic`: it sends them at once; otherwise the test calls `step`.
    """

    def __init__(
        self, cluster: MemoryCluster, name: str = "scheduler/0", incarnation: int = 1, *, is_automatic: bool = True
    ) -> None:
        self.running: dict[int, Running] = {}
        self.submits: list[Submit] = []
        self.cancels: list[Cancel] = []
        self.forgotten: list[ForgetPages] = []
        self.acked = 0
        self.sent = 0
        self.is_automatic, self._is_stepping = is_automatic, False
        self.tokens_per_step = 1
        self.n_cached = 0  # sent with every row and ending
        self.work: Work | None = None  # sent with every natural ending
        self.refuse_next: Refused | None = None
        self.output_of = self.chain
        self.takes = True  # False: Submit is not answered
        super().__init__(cluster, name, incarnation)

    def chain(self, submit: Submit, n: int) -> list[int]:
        """The oracle's next `n` tokens after a Submit."""
        seed = submit.sampling.seed if submit.sampling.temperature > 0 else 0
        return oracle(submit.tokens.tolist(), n, seed)

    def handle(self, sender: str, message: object) -> None:
        match message:
            case Submit():
                self._submit(sender, message)
            case Cancel():
                self.cancels.append(message)
                run = self.running.pop(message.attempt, None)
                if run is not None:
                    self._send(run.sender, [], [Ending(attempt=message.attempt, reason="cancelled", n_cached=self.n_cached)])
            case ForgetPages():
                self.forgotten.append(message)
                self.mailbox.send(sender, PagesForgotten(call=message.call, pages=7))
            case Ack():
                assert self.acked <= message.up_to <= self.sent, "an ack for what was never sent"
                self.acked = message.up_to

    def _submit(self, sender: str, message: Submit) -> None:
        self.submits.append(message)
        if self.refuse_next is not None:
            refusal, self.refuse_next = self.refuse_next, None
            self.mailbox.send(sender, Refused(**{**_fields(refusal), "attempt": message.attempt}))
            return
        if not self.takes:
            return
        first = len(message.tokens) - message.n_prompt
        rest = self.output_of(message, message.terms.max_tokens - first)
        self.running[message.attempt] = Running(message, sender, first, rest)
        self.mailbox.send(sender, Taken(attempt=message.attempt))
        self._go_on()

    def _go_on(self) -> None:
        if self.is_automatic and self.running and not self._is_stepping:
            self._is_stepping = True
            asyncio.get_running_loop().call_soon(self._automatic)

    def _automatic(self) -> None:
        self._is_stepping = False
        if self.name in self.cluster.scripted:
            self.step()
            self._go_on()

    def step(self, n: int | None = None) -> None:
        """Send every attempt its next `n` tokens (default `tokens_per_step`), in one message to each gateway."""
        rows_by_gateway: dict[str, list[tuple[int, int, list[int]]]] = {}
        endings: dict[str, list[Ending]] = {}
        for attempt, run in list(self.running.items()):
            ids = run.rest[: n or self.tokens_per_step]
            run.rest = run.rest[len(ids) :]
            stops = [i for i, token in enumerate(ids) if token in run.submit.terms.stop_tokens]
            if stops:
                ids = ids[: stops[0] + 1]
            rows_by_gateway.setdefault(run.sender, []).append((attempt, run.first, ids))
            run.first += len(ids)
            if stops or not run.rest:
                reason = "stop" if stops else "length"
                endings.setdefault(run.sender, []).append(
                    Ending(attempt=attempt, reason=reason, n_cached=self.n_cached, work=self.work)
                )
                del self.running[attempt]
        for gateway, rows in rows_by_gateway.items():
            self._send(gateway, rows, endings.get(gateway, []))

    def fail(self, attempt: int, detail: str = "broken", reason: EndReason = "failed") -> None:
        """End an attempt with a failure."""
        run = self.running.pop(attempt)
        self._send(run.sender, [], [Ending(attempt=attempt, reason=reason, n_cached=self.n_cached, detail=detail)])

    def _send(self, gateway: str, rows: list[tuple[int, int, list[int]]], endings: list[Ending]) -> None:
        if not self.mailbox.is_connected(gateway):
            return
        self.sent += 1
        ids = [token for _, _, some in rows for token in some]
        logprobs_of = {s.attempt: s.sampling.logprobs for s in self.submits}
        wanted = max((logprobs_of[attempt] for attempt, _, _ in rows), default=-1)
        logprobs = None
        if wanted >= 0:
            logprobs = TokenLogprobs(
                chosen=float32s([-1.0 - i for i in range(len(ids))]),
                width=wanted,
                top_ids=int32s([(token + k) % VOCABULARY for token in ids for k in range(wanted)]),
                top=float32s(np.tile(-1.0 - np.arange(wanted), len(ids))),
            )
        message = Tokens(
            number=self.sent,
            attempts=int64s([attempt for attempt, _, _ in rows]),
            firsts=int32s([first for _, first, _ in rows]),
            counts=int32s([len(some) for _, _, some in rows]),
            cached=int32s([self.n_cached] * len(rows)),
            ids=int32s(ids),
            endings=endings,
            logprobs=logprobs,
            prompts=self._prompts(rows),
        )
        self.mailbox.send(gateway, message)

    def _prompts(self, rows: list[tuple[int, int, list[int]]]) -> list[PromptLogprobs]:
        """Made-up log probabilities of the prompts that are asked for, with the first token of each."""
        submits = {submit.attempt: submit for submit in self.submits}
        begun = [submits[attempt] for attempt, first, _ in rows if first == 0]
        return [_prompt_logprobs(submit) for submit in begun if submit.terms.prompt_logprobs >= 0 and submit.n_prompt > 1]


def _prompt_logprobs(submit: Submit) -> PromptLogprobs:
    n, width = submit.n_prompt - 1, submit.terms.prompt_logprobs
    logprobs = TokenLogprobs(
        chosen=float32s([-1.0] * n), width=width, top_ids=int32s(range(n * width)), top=float32s([-1.0] * (n * width))
    )
    return PromptLogprobs(owner=submit.attempt, first=0, logprobs=logprobs, ranks=int32s([1] * n))


def _fields(refused: Refused) -> dict:
    return {name: getattr(refused, name) for name in refused.__struct_fields__}
