"""Messages between a scheduler and the ranks of its gang. Plans carry differences only, results are arrays.

Each rank keeps a table of slots. A sequence is sent once (`NewSequence` and its tokens); later plans name slots and positions
only. Sampled tokens stay on the device: a plan may compute position p + 1 of a slot before the result with the token at p has
come back. Steps run strictly in order, so a later plan may reuse the pages of an earlier one; only an urgent plan does not wait
for those before it.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from messages.generation.logprobs import PromptParts, TokenLogprobs, TopWanted
from messages.generation.sampling import Sampling
from messages.generation.terms import MAX_ALLOWED_TOKENS, MAX_BAD_SEQUENCES, MAX_BIASED_TOKENS, MAX_STOP_TOKENS, RankTerms
from messages.limits import MAX_LEASE_STEPS, MAX_SEQUENCES
from messages.wire.arrays import EMPTY_I32, Int32s, check_arrays, total
from messages.wire.message import Count, LongText, Message, Part, ShortText

PAGE_TOKENS = 16


class Reset(Message, frozen=True):
    """A scheduler begins an epoch, with every rank of its gang: forget all slots. One rank, the first that samples,
    answers for all of them, with Capacity."""

    epoch: Count  # chosen by the scheduler; plans of another epoch are dropped
    memory_generation: Count = 0  # the one that the scheduler's page ledger describes; 0: it has no ledger
    is_memory_suspect: bool = False  # a device fault may have damaged the KV memory: take new memory, not that of the dead gang


class StepTime(Part, frozen=True):
    """How long a step of this size took when the gang warmed up."""

    rows: Count
    tokens: Count
    context: Count  # tokens of the longest row, those before this step included
    took_s: Annotated[float, msgspec.Meta(ge=0.0)]


class EngineCapacity(Part, frozen=True):
    """What an engine can hold. Engine, worker and scheduler all use this struct."""

    n_pages: Count  # pages of PAGE_TOKENS tokens
    n_slots: Count  # sequences at once
    max_length: Count  # tokens of one sequence, prompt and output: the context length
    max_step_tokens: Count  # tokens computed in one step
    max_lease_steps: Count  # steps that one plan may grant; 1 if leases are no faster
    vocabulary: Count  # token ids are 0 to vocabulary - 1
    device: ShortText  # shown to operators
    lease_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0  # longest useful lease
    step_times: Annotated[list[StepTime], msgspec.Meta(max_length=64)] = []  # measured by the warm-up
    copies_pages: bool = False  # plans may have page copies; False: ranks of the last release, which ignore these
    moves_beside_steps: bool = False  # pages move to and from the host tier while plans run; False: plans wait for them
    n_host_pages: Count = 0  # places of the host tier; 0: the ranks have none, or are of the last release
    n_disk_pages: Count = 0  # places of the disk tier; 0: as above
    n_exchange_pages: Count = 0  # places that other replicas can read; 0: as above
    # Bytes at all ranks, of one page, of the host tier and of the disk tier; 0: those of the last release, which do not say so
    page_bytes: Count = 0
    host_bytes: Count = 0
    disk_bytes: Count = 0
    prepares_grammars: bool = False  # ranks answer `PrepareGrammar`; False: those of the last release, which do not know it
    n_least_pages: Count = 0  # pages in use at the least, whose number follows the load; 0: all of them, always
    n_least_host_pages: Count = 0  # places of the host tier in use at the least; 0: all of them, always
    beside_tokens: Count = 0  # most tokens of an urgent plan, which runs beside those in flight; 0: none may be sent

    @property
    def max_sequence_tokens(self) -> int:
        """Tokens of one sequence that fit, by the model's context and by the memory."""
        return min(self.max_length, self.n_pages * PAGE_TOKENS)

    @property
    def runs_beside(self) -> bool:
        """True if urgent plans run beside others."""
        return self.beside_tokens > 0


class Capacity(Message, frozen=True):
    """The answer to Reset, from one rank to its scheduler: no slot is taken, and the gang can hold this much.

    A memory generation is the time in which the contents of the KV memory are kept. As long as its number stays the same, pages
    hold what finished steps have written, even if processes have died. With a new number the content of every page is unknown.
    """

    epoch: Count
    memory_generation: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    engine: EngineCapacity  # agreed between the ranks: the minimum


class Idle(Message, frozen=True):
    """A gang has nothing left to do, and one rank says so about twice a second, so that its scheduler notices lost messages."""


class TokenRules(Part, frozen=True):
    """Which tokens of a sequence are made more or less probable, and which are never sampled. See `Terms` for each."""

    biased: Annotated[list[Count], msgspec.Meta(max_length=MAX_BIASED_TOKENS)] = []  # distinct ids
    biases: Annotated[list[float], msgspec.Meta(max_length=MAX_BIASED_TOKENS)] = []  # of `biased`, added to their logits
    allowed: Annotated[list[Count], msgspec.Meta(max_length=MAX_ALLOWED_TOKENS)] | None = None  # None: all
    bad: Annotated[list[list[Count]], msgspec.Meta(max_length=MAX_BAD_SEQUENCES)] = []


class NewSequence(Part, frozen=True):
    """A sequence enters a slot and replaces what was there. Its tokens are the next `n_tokens` of `Plan.new_tokens`."""

    slot: Count
    n_tokens: Count  # all tokens known so far: prompt and already generated ones
    n_prompt: Count  # how many of them are the prompt; output penalties count the others
    sampling: Sampling
    terms: RankTerms = RankTerms()
    grammar: LongText = ""  # of llguidance, which the generated tokens follow; "": none
    end_tokens: Annotated[list[int], msgspec.Meta(max_length=MAX_STOP_TOKENS)] = []  # tokens that may end an answer
    rules: TokenRules | None = None  # None: all tokens are treated alike
    prompt_logprobs: TopWanted = -1  # n: results carry those of the prompt's tokens, and of the top n at each place
    request: ShortText = ""  # the id of its request, for log lines; "": not known


class PageCopies(Part, frozen=True):
    """Page `targets[i]` gets the keys and values of the first `tokens[i]` tokens of page `sources[i]`; what it holds after them
    is undefined. Targets are distinct, and none is a source, so the order does not count."""

    sources: Int32s
    targets: Int32s
    tokens: Int32s  # 1 to PAGE_TOKENS

    def __post_init__(self) -> None:
        check_arrays(self)
        if not len(self.sources) == len(self.targets) == len(self.tokens):
            raise ValueError(f"targets: expected {len(self.sources)} as in sources, got {len(self.targets)}")


class Plan(Message, frozen=True):
    """One step, or a lease of several, as differences to what the ranks know. Encoded once and sent to every rank.

    Rows: row i computes `row_counts[i]` tokens of slot `row_slots[i]` at positions `row_starts[i]`, +1, ...; their keys and
    values go into the slot's pages. With `row_samples[i]` = 1 the token after the last of them is sampled. With
    `draft_counts[i]` = k > 0 the row computes the last known token and k draft tokens (row_counts[i] = k + 1) and samples
    after each of them; the accepted drafts and one more token are emitted. The slots of one plan are distinct.

    Pages: the page table of slot `page_slots[j]` gets page `page_ids[j]` at index `page_indices[j]` (token position //
    PAGE_TOKENS).

    A lease (n_steps > 1) repeats the step with every row one token further; all rows have count 1, sample 1 and no drafts.
    It uses step numbers step .. step + n_steps - 1 and gives one Result for each.

    An urgent plan has one step, which runs beside those of the plans before it, and may end before them. So it touches no slot
    and no page that these write, and copies no page. All its sequences are new, and each row has at least two tokens. Plans
    after it run after it. At most one is in flight.
    """

    epoch: Count
    step: Count
    n_steps: Annotated[int, msgspec.Meta(ge=1, le=MAX_LEASE_STEPS)]
    new: Annotated[list[NewSequence], msgspec.Meta(max_length=MAX_SEQUENCES)]
    new_tokens: Int32s
    page_slots: Int32s
    page_indices: Int32s
    page_ids: Int32s
    row_slots: Int32s
    row_starts: Int32s
    row_counts: Int32s
    row_samples: Int32s
    draft_counts: Int32s = EMPTY_I32  # empty: no row has drafts
    draft_ids: Int32s = EMPTY_I32
    expected_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0  # time of each of its steps, by earlier ones; 0: not known
    copies: PageCopies | None = None  # done before its first step; sent only to gangs whose capacity says `copies_pages`
    is_urgent: bool = False  # runs beside the plans in flight; sent only to gangs whose capacity has `beside_tokens`

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = len(self.row_slots)
        for name in ("row_starts", "row_counts", "row_samples"):
            if len(getattr(self, name)) != rows:
                raise ValueError(f"{name}: expected {rows} rows as in row_slots, got {len(getattr(self, name))}")
        if len(self.draft_counts) not in (0, rows):
            raise ValueError(f"draft_counts: expected none or {rows}, got {len(self.draft_counts)}")
        if total(self.draft_counts) != len(self.draft_ids):
            raise ValueError(f"draft_ids: expected {total(self.draft_counts)} ids, got {len(self.draft_ids)}")
        if not len(self.page_slots) == len(self.page_indices) == len(self.page_ids):
            raise ValueError(f"page_ids: expected {len(self.page_slots)} as in page_slots, got {len(self.page_ids)}")
        if sum(new.n_tokens for new in self.new) != len(self.new_tokens):
            raise ValueError(f"new_tokens: expected {sum(new.n_tokens for new in self.new)}, got {len(self.new_tokens)}")


class PrepareGrammar(Message, frozen=True):
    """A scheduler asks every rank of its gang to compile a grammar before a plan needs it."""

    epoch: Count
    number: Count  # of the grammar, chosen by the scheduler; within an epoch the same number is the same grammar
    text: LongText  # as in `NewSequence.grammar`


class GrammarPrepared(Message, frozen=True):
    """A rank has compiled a grammar, so no step waits for it there. One that exceeds a limit fails with its first token."""

    epoch: Count
    number: Count


class GrammarFailure(Part, frozen=True):
    """An answer that cannot go on: its grammar exceeds a limit of the library that follows it."""

    slot: Count
    reason: LongText


class GrammarRest(Part, frozen=True):
    """The next masks of a slot are computed while it has no row. A plan that has one earlier makes its step wait."""

    slot: Count
    wait_s: Annotated[float, msgspec.Meta(ge=0.0)]


class GrammarReport(Part, frozen=True):
    """What a rank that samples knows of the grammars of a step's rows once its tokens are sampled.

    Row i says that the tokens of slot `slots[i]` at positions `starts[i]`, +1, ... can be no others than the next `counts[i]`
    of `ids`. Used as drafts they are accepted.
    """

    slots: Int32s = EMPTY_I32
    starts: Int32s = EMPTY_I32
    counts: Int32s = EMPTY_I32
    ids: Int32s = EMPTY_I32
    failures: Annotated[list[GrammarFailure], msgspec.Meta(max_length=MAX_SEQUENCES)] = []  # tokens of these rows do not count
    rests: Annotated[list[GrammarRest], msgspec.Meta(max_length=MAX_SEQUENCES)] = []  # of slow grammars

    def __post_init__(self) -> None:
        check_arrays(self)
        if not len(self.slots) == len(self.starts) == len(self.counts):
            raise ValueError(f"counts: expected {len(self.slots)} as in slots, got {len(self.counts)}")
        if total(self.counts) != len(self.ids):
            raise ValueError(f"ids: expected {total(self.counts)}, got {len(self.ids)}")


class Result(Message, frozen=True):
    """The sampled tokens of one step. Rows are in the order of the plan's sampling rows (`row_samples` = 1).

    Row i emitted `counts[i]` tokens for slot `slots[i]`: 1, or accepted drafts + 1.
    """

    epoch: Count
    step: Count
    slots: Int32s
    counts: Int32s
    ids: Int32s
    compute_s: float  # time on the device (or the CPU's step thread); NaN: not known
    logprobs: TokenLogprobs | None = None  # of `ids`; None if no row asked for any
    grammars: GrammarReport | None = None  # None if no row has a grammar that says anything
    # Log probabilities of prompt tokens: a row that has computed the positions p, p + 1, ... gives those of p + 1, p + 2, ...
    prompts: PromptParts = []
    # How long the device waited for the launch of this step after the step before; less than 0: it was launched so long before
    # that end. NaN: not known, or a later step of the same plan.
    wait_s: float = math.nan


class StepFailed(Message, frozen=True):
    """The gang refuses a plan as a whole. It computes nothing of it, nor of the plans after it, until a new epoch begins."""

    epoch: Count
    step: Count
    reason: LongText
    suspects: Int32s  # [n] slots of the plan that may have caused it
