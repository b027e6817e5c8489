"""Grammars compiled for a model's vocabulary, in threads of their own: a large one takes up to a second, and no step waits for
one that it does not need."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

import structlog
from llguidance import LLMatcher

from gpu_workers.grammar.vocabulary import GrammarVocabulary

log = structlog.get_logger()
_MOST_COMPILED = 64
_THREADS = 4  # a slow grammar delays no others
_NICE = 5  # steps come first where processors are few


class CompiledGrammars:
    """Matchers at the beginnings of the grammars that were used lately. Used by any thread."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        """vocabulary: the model's; it may still be in the making."""
        self._vocabulary = vocabulary
        self._compiled: OrderedDict[str, Future[LLMatcher]] = OrderedDict()  # the last used one last
        self._lock = threading.Lock()  # of `_compiled`
        self._threads = ThreadPoolExecutor(_THREADS, "grammar", initializer=give_way)

    def get(self, grammar: str) -> Future[LLMatcher]:
        """A matcher at the beginning of the grammar, to be copied (10 µs), not moved. Begins to compile one that is not known.

        A grammar that exceeds a limit of the library gives a matcher in its error state. The future raises ValueError if the
        vocabulary cannot be used.
        """
        with self._lock:
            known = self._compiled.pop(grammar, None)
            if known is None:
                known = self._threads.submit(self._compile, grammar)
                if len(self._compiled) == _MOST_COMPILED:
                    self._compiled.popitem(last=False)
            self._compiled[grammar] = known
        return known

    def _compile(self, grammar: str) -> LLMatcher:
        matcher = LLMatcher(self._vocabulary.tokenizer(), grammar, log_level=0)  # other threads run meanwhile
        if matcher.is_error():  # admission has refused all grammars but those that are too complex for this vocabulary
            log.warning("grammar too complex for this vocabulary", error=matcher.get_error()[:500])
        else:
            matcher.compute_bitmask()  # copies share what is found for it: the first mask of an answer is quick then
        return matcher


def give_way() -> None:
    """Let the other threads of this process run first."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
