"""The hash chain (`hash_chain.py`) as an engine. It computes next to nothing, but uses slots, pages and plans as a real model
does. Imports no torch.

The state after every position is stored in the page of that position, and is read through the slot's page table when the
next position is computed. So a wrong page table, a prefix that is wrongly shared, a lost or a repeated token changes every
token after it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from gpu_workers.batch.slot_table import SlotTable
from gpu_workers.batch.step_arrays import StepArrays, build_step, draft_places
from gpu_workers.disk.place_tag import place_bytes
from gpu_workers.engine import Engine
from gpu_workers.hash_chain import START, STEP, mix, mix_array, next_free, powers
from gpu_workers.hash_chain_places import ChainPlaces
from gpu_workers.pages.host_form import HostForm
from gpu_workers.sampling.draft_verification import accept_drafts, emitted_indices
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.exchange_places import ExchangePlaces
from gpu_workers.vault.host_region import HostRegion
from gpu_workers.vault.returned_pages import return_pages
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs
from messages.steps import PAGE_TOKENS, EngineCapacity, PageCopies, Plan, Result, StepTime
from messages.wire.arrays import float32s, int32s

_OLD_PULSE_S, _SLOW_STEP_S = 1.0, 0.1
_LONGEST_STEP_S = 0.005  # of the largest step, beside the artificial step time
_PAGE_BYTES = PAGE_TOKENS * 8
_UNLIKELY = -100.0  # log probability of every token but the chosen one


@dataclass(frozen=True)
class _Launched:
    """The results of one plan. Result i may be read from time ready_s[i] on (time.monotonic)."""

    results: list[Result]
    ready_s: list[float]


class HashChainEngine(Engine[_Launched]):
    """The hash chain as an engine. With an artificial step time it behaves like a device that works in the background."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self.max_in_flight = 2 if settings.hash_chain_step_s else 1
        self._busy_until_s = 0.0
        self._growth = powers(STEP, settings.step_tokens + 1)
        self._shrinkage = powers(pow(STEP, -1, 1 << 64), settings.step_tokens + 1)
        n_places = settings.hash_chain_pages * PAGE_TOKENS
        self._is_written = np.zeros(n_places, bool)
        self._region = self.kv_region = HostRegion(max(n_places * 8, 8))
        self._pages = np.frombuffer(self._region.buffer, np.uint64, n_places)
        self._host = _host_form_of(settings)
        pages = self._pages.view(np.uint8).reshape(-1, _PAGE_BYTES)
        if self._host.n_places:
            self.host_tier = self._host.make_places(pages, self._host.n_places)
        n_exchanged = settings.exchange_bytes // _PAGE_BYTES
        self.exchange = ExchangePlaces(pages, n_exchanged) if n_exchanged else None
        self.reset(0)

    def capacity(self) -> EngineCapacity:
        """The limits of the settings: the chain needs next to no memory."""
        s = self._settings
        longest_s = s.hash_chain_step_s + _LONGEST_STEP_S
        return EngineCapacity(
            n_pages=s.hash_chain_pages,
            n_slots=s.slots,
            max_length=s.length_limit(),
            max_step_tokens=s.step_tokens,
            max_lease_steps=s.lease_steps,
            lease_s=s.lease_seconds,
            vocabulary=s.hash_chain_vocabulary,
            device="hash-chain",
            copies_pages=True,
            page_bytes=s.n_ranks * _PAGE_BYTES,
            host_bytes=s.n_ranks * s.host_cache_bytes,
            disk_bytes=s.n_ranks * s.disk_cache_bytes,
            n_least_pages=min(-(-s.kv_least_bytes // _PAGE_BYTES), s.hash_chain_pages),
            n_host_pages=self._host.n_places,
            n_least_host_pages=self._host.n_least_places,
            n_exchange_pages=s.exchange_bytes // _PAGE_BYTES,
            n_disk_pages=self._settings.disk_cache_bytes // place_bytes(self._host.place_bytes),
            beside_tokens=s.step_tokens if s.n_ranks == 1 else 0,
            step_times=[StepTime(rows=s.slots, tokens=s.step_tokens, context=s.length_limit(), took_s=longest_s)],
        )

    def reset(self, epoch: int) -> None:
        """Forget all slots; pages keep their content."""
        capacity = self.capacity()
        self._slots = SlotTable(capacity)
        self._tokens = np.zeros((capacity.n_slots, capacity.max_length + 1), np.int32)
        self._seed_mix = np.zeros(capacity.n_slots, np.uint64)

    def launch(self, plan: Plan) -> _Launched:
        """Compute all steps of a plan; `collect` waits for their artificial step time. Raises: PlanRefused."""
        self._slots.apply(plan)
        if plan.copies is not None:
            self._copy_pages(plan.copies)
        self._write_tokens(plan)
        results, ready_s = [], []
        step_s = max(self._settings.hash_chain_step_s, _SLOW_STEP_S if self._has_old_pulse() else 0.0)
        for index in range(plan.n_steps):
            results.append(self._run_step(plan, index))
            if plan.is_urgent:  # it waits for no other step, and all of them take longer
                ready_s.append(time.monotonic() + step_s)
                self._busy_until_s += step_s
                continue
            self._busy_until_s = max(self._busy_until_s, time.monotonic()) + step_s
            ready_s.append(self._busy_until_s)
        return _Launched(results, ready_s)

    def collect(self, launched: _Launched) -> Iterator[Result]:
        """The results, each when its artificial step time is over."""
        for result, ready_s in zip(launched.results, launched.ready_s, strict=True):
            wait_s = ready_s - time.monotonic() if self._settings.hash_chain_step_s else 0.0
            if wait_s > 0:
                time.sleep(wait_s)
            yield result

    def return_pages(self, pages: np.ndarray) -> None:
        """Give the memory of these pages back. Raises: ValueError for an unknown one."""
        return_pages(self._region, _PAGE_BYTES, self._settings.hash_chain_pages, pages)

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def _has_old_pulse(self) -> bool:
        """True if the test that touches the pulse is stopped, or is kept from running: its streams must not end meanwhile."""
        if not self._settings.hash_chain_pulse:
            return False
        with suppress(FileNotFoundError):
            return time.time() - os.stat(self._settings.hash_chain_pulse).st_mtime > _OLD_PULSE_S
        return False

    def _copy_pages(self, copies: PageCopies) -> None:
        """Copies the states of the first tokens of pages, and no more than that."""
        pages = self._pages.reshape(-1, PAGE_TOKENS)
        is_copied = np.arange(PAGE_TOKENS) < copies.tokens[:, None]
        pages[copies.targets] = np.where(is_copied, pages[copies.sources], pages[copies.targets])

    def _write_tokens(self, plan: Plan) -> None:
        """Copies the tokens of new sequences, their seeds and the drafts into the tables."""
        offset = 0
        for new in plan.new:
            self._tokens[new.slot, : new.n_tokens] = plan.new_tokens[offset : offset + new.n_tokens]
            offset += new.n_tokens
            seed = new.sampling.seed if new.sampling.temperature > 0 else 0
            self._seed_mix[new.slot] = mix(seed)
        if len(plan.draft_ids):
            self._tokens[draft_places(plan)] = plan.draft_ids

    def _run_step(self, plan: Plan, index: int) -> Result:
        began_s = time.monotonic()
        step = build_step(plan, self._slots.page_table, index)
        before = np.maximum(step.starts - 1, 0)
        page_ids = self._slots.page_table[step.slots, before // PAGE_TOKENS].astype(np.int64)
        previous = page_ids * PAGE_TOKENS + before % PAGE_TOKENS
        for rows in self._rounds(step, previous):
            self._advance(step, rows, previous)
        states = self._pages[step.slot_mapping[step.sample_index]]
        vocabulary = np.uint64(self._settings.hash_chain_vocabulary)
        samples = (mix_array(states ^ self._seed_mix[step.sample_slots]) % vocabulary).astype(np.int32)
        self._replace_banned(samples, step)
        self._tokens[step.sample_slots, step.sample_positions] = samples
        counts = accept_drafts(samples, step.result_widths, plan.draft_ids)
        ids = samples[emitted_indices(step.result_widths, counts)]
        asked = self._slots.sampling.logprobs_of(step.result_slots)
        return Result(
            epoch=plan.epoch,
            step=plan.step + index,
            slots=step.result_slots,
            counts=int32s(counts),
            ids=ids,
            compute_s=time.monotonic() - began_s + self._settings.hash_chain_step_s,
            logprobs=self._certain_logprobs(ids, np.repeat(asked, counts)),
            prompts=self._prompt_logprobs(step),
        )

    def _prompt_logprobs(self, step: StepArrays) -> list[PromptLogprobs]:
        """What the step gives of prompts: made-up numbers, each a function of its token and the chain's state before it."""
        rows = self._slots.prompts.rows_of(step)
        if rows is None:
            return []
        parts, start = [], 0
        mixed = mix_array(self._pages[step.slot_mapping[rows.index]])
        ids = self._tokens[rows.token_slots, rows.next_positions].astype(np.int64)
        for slot, first, count, width in zip(rows.slots, rows.firsts, rows.counts, rows.widths, strict=True):
            some, rank = slice(start, start + count), np.arange(width)[None, :]
            low = (mixed[some] & np.uint64(0xFFFF)).astype(np.int64)
            top_ids = (low[:, None] + rank) % self._settings.hash_chain_vocabulary
            logprobs = TokenLogprobs(
                chosen=float32s(-(((low ^ ids[some]) % 4096) + 1) / 256),
                width=width,
                top_ids=int32s(top_ids.ravel()),
                top=float32s(np.broadcast_to(-rank / 4, top_ids.shape).ravel()),
            )
            parts.append(PromptLogprobs(owner=slot, first=first, logprobs=logprobs, ranks=int32s(low % 100 + 1)))
            start += count
        return parts

    def _replace_banned(self, samples: np.ndarray, step: StepArrays) -> None:
        """Replaces banned samples [S] by the next id that is allowed, in place. A bias changes nothing: there are no logits."""
        table, vocabulary = self._slots.sampling, self._settings.hash_chain_vocabulary
        edited = np.flatnonzero(table.is_edited(step.sample_slots, step.sample_positions))
        if len(edited):
            rows = table.gather(step.sample_slots[edited], step.sample_positions[edited])
            for row, sample in enumerate(edited.tolist()):
                rules = rows.rules_of(row)
                if rules is None:
                    forbidden = np.zeros(vocabulary, bool)
                else:
                    known = self._tokens[rows.slots[row], rows.n_prompt[row] : rows.positions[row]]
                    forbidden = rules.forbidden_after(known, vocabulary)
                banned = rows.banned_of(row)
                if banned is not None:
                    forbidden[banned] = True
                samples[sample] = next_free(int(samples[sample]), forbidden)

    def _rounds(self, step: StepArrays, previous: np.ndarray) -> Iterator[np.ndarray]:
        """Yields groups of rows, so that no row reads a state that a row of the same or a later group writes.

        previous: [R] int64, the place of the state that each row reads.
        """
        todo = np.arange(len(step.slots))
        is_todo = np.ones(len(todo), bool)
        while len(todo):
            self._is_written[step.slot_mapping[np.repeat(is_todo, step.counts)]] = True
            waits = self._is_written[previous[todo]] & (step.starts[todo] > 0)
            self._is_written[step.slot_mapping] = False
            if waits.all():
                waits[:] = False  # the rows wait for each other in a circle, so no order is right
            yield todo[~waits]
            todo = todo[waits]
            is_todo[:] = False
            is_todo[todo] = True

    def _advance(self, step: StepArrays, rows: np.ndarray, previous: np.ndarray) -> None:
        """Stores the state after every token of these rows."""
        states = np.where(step.starts[rows] > 0, self._pages[previous[rows]], np.uint64(START))
        mixed = mix_array(self._tokens[step.token_slots, step.positions].astype(np.uint64) + np.uint64(1))
        is_decode = rows < step.n_decode
        places = step.offsets[rows[is_decode]]
        self._pages[step.slot_mapping[places]] = states[is_decode] * np.uint64(STEP) + mixed[places]
        for row, state in zip(rows[~is_decode], states[~is_decode], strict=True):
            n = int(step.counts[row])
            places = slice(int(step.offsets[row]), int(step.offsets[row]) + n)
            sums = np.cumsum(mixed[places] * self._shrinkage[1 : n + 1], dtype=np.uint64)
            self._pages[step.slot_mapping[places]] = (sums + state) * self._growth[1 : n + 1]

    def _certain_logprobs(self, ids: np.ndarray, asked: np.ndarray) -> TokenLogprobs | None:
        """Log probability 0 for each of ids [N], with the ids after it as the other top tokens; None if no row asks for any.

        asked: [N] int, -1 for none, n for the chosen token and the top n."""
        if (asked < 0).all():
            return None
        rank = np.arange(int(asked.max()))[None, :]
        is_asked = rank < asked[:, None]
        top_ids = np.where(is_asked, (ids[:, None] + rank) % self._settings.hash_chain_vocabulary, -1)
        top = np.where(is_asked, np.where(rank == 0, 0.0, _UNLIKELY), np.nan)
        chosen = float32s(np.where(asked >= 0, 0.0, np.nan))
        return TokenLogprobs(chosen=chosen, width=rank.shape[1], top_ids=int32s(top_ids.ravel()), top=float32s(top.ravel()))


def _host_form_of(settings: WorkerSettings) -> HostForm:
    form = ChainPlaces() if settings.host_cache_dtype != "same" else None
    is_adaptive, least_bytes = settings.host_cache_dtype == "adaptive", settings.host_cache_least_bytes
    return HostForm(settings.host_cache_bytes, _PAGE_BYTES, form, is_adaptive, least_bytes=least_bytes)
