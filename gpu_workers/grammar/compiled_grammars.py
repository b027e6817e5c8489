"""Grammars compiled for a model's vocabulary, in a thread of their own: a large one takes up to 100 ms, and no step waits for
one that it does not need."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

import structlog
from llguidance import LLMatcher

from gpu_workers.grammar.vocabulary import GrammarVocabulary

log = structlog.get_logger()
_MOST_COMPILED = 64


class CompiledGrammars:
    """Matchers at the beginnings of the grammars that were used lately. Not thread-safe, its futures are."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        """vocabulary: the model's; it may still be in the making."""
        self._vocabulary = vocabulary
        self._compiled: OrderedDict[str, Future[LLMatcher]] = OrderedDict()  # the last used one last
        self._threads = ThreadPoolExecutor(1, "grammar")
        self._n_begun = self._n_ended = 0  # each is written by one thread

    @property
    def is_compiling(self) -> bool:
        """True while a grammar is compiled. Read by any thread."""
        return self._n_begun > self._n_ended

    def get(self, grammar: str) -> Future[LLMatcher]:
        """A matcher at the beginning of the grammar, to be copied (10 µs), not moved. Begins to compile one that is not known.

        A grammar that exceeds a limit of the library gives a matcher in its error state. The future raises ValueError if the
        vocabulary cannot be used.
        """
        known = self._compiled.pop(grammar, None)
        if known is None:
            self._n_begun += 1
            known = self._threads.submit(self._compile, grammar)
            if len(self._compiled) == _MOST_COMPILED:
                self._compiled.popitem(last=False)
        self._compiled[grammar] = known
        return known

    def _compile(self, grammar: str) -> LLMatcher:
        try:
            return self._matcher(grammar)
        finally:
            self._n_ended += 1

    def _matcher(self, grammar: str) -> LLMatcher:
        matcher = LLMatcher(self._vocabulary.tokenizer(), grammar, log_level=0)  # other threads run meanwhile
        if matcher.is_error():  # admission has refused all grammars but those that are too complex for this vocabulary
            log.warning("grammar too complex for this vocabulary", error=matcher.get_error()[:500])
        return matcher
