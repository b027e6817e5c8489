"""The text of one sequence, token by token: detokenized, and searched for stop strings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from actors.gateway.text.detokenizer import Detokenizer
from actors.gateway.text.stop_strings import StopStringFilter
from messages.generation.terms import Terms


class SequenceText:
    """`texts[i]`: the text that became certain with token i."""

    __slots__ = ("_detokenizer", "_filter", "_hidden", "_is_searched", "_min_tokens", "is_stopped", "texts")

    def __init__(self, detokenizer: Detokenizer, terms: Terms, stop_set: frozenset[int]) -> None:
        """`stop_set`: the tokens that end the sequence. They have no text, unless the client wants to see what ended it."""
        self.texts: list[str] = []
        self.is_stopped = False  # a stop string was found
        self._detokenizer, self._min_tokens = detokenizer, terms.min_tokens
        self._filter = StopStringFilter(terms.stop, keeps_match=terms.include_stop_str_in_output)
        self._is_searched = self._filter.is_looking
        self._hidden: frozenset[int] = frozenset() if terms.include_stop_str_in_output else stop_set

    @property
    def matched_stop(self) -> str:
        """The stop string that was found; "" if none was."""
        return self._filter.matched

    def push(self, new_ids: Sequence[int]) -> int:
        """Append the texts of the next tokens; returns how many tokens that are: all, or those up to the end of a stop string.
        Below `min_tokens` there is no search for one.
        """
        texts, push, hidden = self.texts, self._detokenizer.push, self._hidden
        if len(new_ids) == 1 and not self._is_searched:  # the most frequent case
            token = new_ids[0]
            texts.append("" if token in hidden and len(texts) >= self._min_tokens else push(token))
            return 1
        start = len(texts)
        if start < self._min_tokens:
            n = self._min_tokens - start
            texts.extend([push(token) for token in new_ids[:n]])
            new_ids = new_ids[n:]
        if not self._is_searched:
            if len(new_ids) > 1 and hidden.isdisjoint(new_ids):
                texts.extend(self._detokenizer.push_all(new_ids))
                return len(texts) - start
            for token in new_ids:
                texts.append("" if token in hidden else push(token))
            return len(texts) - start
        for token in new_ids:
            texts.append("" if token in hidden else self._filter.push(push(token)))
            if self._filter.is_matched:
                self.is_stopped = True
                break
        return len(texts) - start

    def finish(self) -> str:
        """The sequence ends; returns the text that becomes certain with its ending. A stop string may be found in it."""
        tail = self._detokenizer.flush()
        if len(self.texts) > self._min_tokens:
            tail = self._filter.push(tail)
            self.is_stopped = self._filter.is_matched
        return tail + self._filter.flush()
