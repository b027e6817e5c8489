"""The sampling parameters of each slot, as columns. Each column is declared once, in `SamplingRows`.

A declaration is a name, an element type, and how the value of a new sequence is found. The host's table, the rows of a step,
the table on the device (`DeviceState.sampling`) and its upload follow from the declarations. To add a column, declare it
here and use it by name in `gpu_workers.sampling.sampler` and `gpu_workers.cuda.kernels.sampling`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gpu_workers.batch.slot_rules import SlotRules
from messages.generation.sampling import Sampling
from messages.steps import NewSequence

_LEAST_TEMPERATURE = 1e-4
_ALWAYS = 2**62  # after every position


def temperature_of(sampling: Sampling) -> float:
    """The temperature to divide logits by; 0 is greedy. Temperatures below 1e-4 are treated as greedy: the quotients would
    overflow float32."""
    return sampling.temperature if sampling.temperature >= _LEAST_TEMPERATURE else 0.0


def _banned_until(new: NewSequence) -> int:
    return new.n_prompt + new.terms.min_tokens if new.terms.banned_tokens else 0


def _edited_until(new: NewSequence) -> int:
    sampling = new.sampling
    has_penalty = sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1
    return _ALWAYS if has_penalty or new.rules else _banned_until(new)


class Column:
    """One declared column. Read from `SamplingRows` it is the array [S] of its values."""

    name: str

    def __init__(self, dtype: str, read: Callable[[NewSequence], float]) -> None:
        """dtype: of numpy, such as "<f4"; read: the value of a sequence that enters a slot."""
        self.dtype, self.read = dtype, read

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, rows: SamplingRows, owner: type) -> np.ndarray:
        return rows.values[self.name]


class SamplingRows:
    """The sampling parameters of S samples of one step. All arrays are [S], on the host."""

    n_prompt = Column("<i8", lambda new: new.n_prompt)  # tokens of the sequence that are prompt
    seed = Column("<i8", lambda new: new.sampling.seed)
    temperature = Column("<f4", lambda new: temperature_of(new.sampling))  # 0 is greedy
    top_p = Column("<f4", lambda new: new.sampling.top_p)  # 1 is off
    top_k = Column("<i4", lambda new: new.sampling.top_k)  # 0 is off
    min_p = Column("<f4", lambda new: new.sampling.min_p)  # 0 is off
    presence = Column("<f4", lambda new: new.sampling.presence_penalty)  # 0 is off
    frequency = Column("<f4", lambda new: new.sampling.frequency_penalty)  # 0 is off
    repetition = Column("<f4", lambda new: new.sampling.repetition_penalty)  # 1 is off
    # position from which banned tokens are allowed; 0: none are banned
    banned_until = Column("<i8", lambda new: _banned_until(new))
    edited_until = Column("<i8", lambda new: _edited_until(new))  # position from which logits are used unchanged
    logprobs = Column("<i4", lambda new: new.sampling.logprobs)  # -1: none; n: the chosen token's and the top n
    constrained = Column("<i4", lambda new: bool(new.grammar))  # 1: each token follows a grammar

    def __init__(
        self,
        slots: np.ndarray,
        positions: np.ndarray,
        values: np.ndarray,
        banned: Mapping[int, np.ndarray],
        rules: Mapping[int, SlotRules],
    ) -> None:
        """slots: int64; positions: int64, index of the token to be sampled in its whole sequence; values: `SAMPLING_ROW`;
        banned: ids [M] int64 by slot, for rows before `banned_until`; rules: by slot, of those that have any."""
        self.slots, self.positions, self.values, self._banned, self._rules = slots, positions, values, banned, rules

    @property
    def is_all_greedy(self) -> bool:
        """True if one argmax per row is enough, log probabilities apart."""
        return not self.temperature.any() and not self.is_edited.any()

    @property
    def is_edited(self) -> np.ndarray:
        """[S] bool: True where logits are changed before the choice, by penalties, rules or for banned tokens."""
        return self.positions < self.edited_until

    def banned_of(self, row: int) -> np.ndarray | None:
        """Ids [M] int64 that may not be sampled in this row; None where all may."""
        return self._banned[int(self.slots[row])] if self.positions[row] < self.banned_until[row] else None

    def rules_of(self, row: int) -> SlotRules | None:
        """The rules for single tokens of this row; None if it has none."""
        return self._rules.get(int(self.slots[row]))

    @property
    def wants_logprobs(self) -> bool:
        """True if any row asks for log probabilities."""
        return bool((self.logprobs >= 0).any())


_COLUMNS = [column for column in vars(SamplingRows).values() if isinstance(column, Column)]
# One slot's values. Its size is a multiple of 8 bytes, so that a device holds the same bytes as int64 words.
SAMPLING_ROW = np.dtype([(column.name, column.dtype) for column in _COLUMNS], align=True)


def column_index(name: str) -> int:
    """The offset of a column in a row, counted in elements of its own type. Raises: KeyError if there is no such column."""
    dtype, offset, *_ = {str(field): place for field, place in (SAMPLING_ROW.fields or {}).items()}[name]
    return offset // dtype.itemsize


def row_of(new: NewSequence) -> tuple[float, ...]:
    """The values of a sequence, in the order of the columns."""
    return tuple([column.read(new) for column in _COLUMNS])


def greedy_rows(n: int) -> np.ndarray:
    """[n] SAMPLING_ROW of greedy sequences that ask for nothing else."""
    rows = np.zeros(n, SAMPLING_ROW)
    rows[:] = row_of(NewSequence(slot=0, n_tokens=0, n_prompt=0, sampling=Sampling(temperature=0.0)))
    return rows


class SamplingTable:
    """The columns of all slots of a rank, on the host."""

    def __init__(self, n_slots: int) -> None:
        self._values = greedy_rows(n_slots)
        self._edited_until, self._logprobs = self._values["edited_until"], self._values["logprobs"]  # views
        self._banned: dict[int, np.ndarray] = {}
        self._rules: dict[int, SlotRules] = {}

    def put(self, new: NewSequence) -> None:
        """Write the parameters of a sequence that enters its slot."""
        self._values[new.slot] = row_of(new)
        self._rules.pop(new.slot, None)
        if new.rules is not None:
            self._rules[new.slot] = SlotRules.of(new.rules)
        banned = new.terms.banned_tokens
        if banned:
            self._banned[new.slot] = np.array(banned, np.int64)

    def values_of(self, slots: np.ndarray) -> np.ndarray:
        """[N] SAMPLING_ROW, a copy. slots [N] int64."""
        return self._values.take(slots)

    def is_edited(self, slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """[N] bool, as in SamplingRows, for positions [N] of slots [N], both int64."""
        return positions < self._edited_until[slots]

    def logprobs_of(self, slots: np.ndarray) -> np.ndarray:
        """[N] int32, as in SamplingRows."""
        return self._logprobs[slots]

    def has_bad_sequences(self, slots: np.ndarray) -> bool:
        """True if the rules of any of these slots [N] depend on the last tokens."""
        return bool(self._rules) and any(
            len(rules.lasts) for slot in slots.tolist() if (rules := self._rules.get(slot)) is not None
        )

    def gather(self, slots: np.ndarray, positions: np.ndarray) -> SamplingRows:
        """The rows of these samples: slots and positions [S] int64."""
        return SamplingRows(slots, positions, self._values.take(slots), self._banned, self._rules)
