"""Which requests may have the answer of a similar one, and with which others. Pure.

The text of the question may differ, and nothing else: model, caller, salt, system prompt, template, sampling and terms are a
part of the circle. So are the numbers in the text, because vectors hardly tell "in 2019" from "in 2020".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from actors.gateway.admission.caller import caller_of_name, caller_of_tenant
from actors.gateway.admission.new_request import NewRequest
from actors.gateway.answer_cache.access import CacheAccess
from actors.gateway.answer_cache.fingerprint import TERMS_OF_THE_ANSWER, is_repeatable
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.settings import GatewaySettings
from actors.gateway.similar_answers.question import Question

_MOST_CHARACTERS = 2048  # longer questions are documents, whose vectors say little about the one sentence that differs
_CIRCLE_BYTES = 16
_FRAME_TERMS = tuple(name for name in TERMS_OF_THE_ANSWER if name not in ("max_tokens", "cache_scope", "bad_tokens"))
_TURN_KEYS = {"role", "content"}
_NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")
_encoder = msgspec.msgpack.Encoder(order="sorted")


class SimilarQuestions:
    """The rule of one server: how similar two questions must be, for each caller."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._least = settings.semantic_threshold
        caller_of = caller_of_tenant if settings.keys_file else caller_of_name
        self._least_of = {caller_of(value): least for value, least in settings.semantic_thresholds.items()}
        self._embedding = (settings.embedding_model, settings.embedding_folder, settings.embedding_dimensions)

    def question_of(self, new: NewRequest, spec: RequestSpec, access: CacheAccess) -> Question | None:
        """The question that a request is; None if its answer is not shared with similar ones. `spec`: made of `new`; `access`:
        what it may do with answers of equal ones."""
        is_repeated = is_repeatable(spec, has_seed=new.has_seed)
        if not (access.may_keep and is_repeated) or _is_special(new, spec):
            return None
        frame, text = _frame_and_text(new)
        if not text.strip() or len(text) > _MOST_CHARACTERS:
            return None
        least = self._least_of.get(new.terms.caller, self._least)
        return Question(
            _circle(self._embedding, new, spec, frame, text), text, least, access.may_find and math.isinf(access.max_age_s)
        )


def numbers_in(text: str) -> list[str]:
    """The numbers of a text, in their order."""
    return _NUMBER.findall(text)


def _is_special(new: NewRequest, spec: RequestSpec) -> bool:
    """True if more than a text is asked for, or more than one answer, or where a client cannot see whose answer it got."""
    return (
        new.api == "zeromq"
        or spec.model > 0
        or spec.n_sequences != 1
        or new.tools is not None
        or spec.terms.grammar is not None
        or spec.best_of is not None
        or bool(spec.echo)
        or not spec.has_answer
        or spec.with_token_ids
        or spec.terms.truncate_prompt_tokens is not None
    )


def _frame_and_text(new: NewRequest) -> tuple[Sequence[Any], str]:
    """(what stands around the question, the question); the question is "" if the request is no single one."""
    if new.texts is not None and len(new.texts) == 1:
        return ("text",), new.texts[0]
    if not new.turns or not all(set(turn) == _TURN_KEYS for turn in new.turns):
        return (), ""
    *before, last = new.turns
    if last["role"] != "user" or not isinstance(last["content"], str) or not _are_instructions(before):
        return (), ""
    return ("chat", [turn["content"] for turn in before]), last["content"]


def _are_instructions(turns: Sequence[Mapping[str, Any]]) -> bool:
    return all(turn["role"] == "system" for turn in turns)


def _circle(embedding: Sequence[Any], new: NewRequest, spec: RequestSpec, frame: Sequence[Any], text: str) -> bytes:
    """A digest of all that two requests with one answer have in common. The client's own token limit counts, not the one that
    is left beside this prompt; and the caller always does, whether others share caches or not."""
    sampling = spec.sampling
    if sampling.temperature == 0.0:
        sampling = msgspec.structs.replace(sampling, seed=0)
    limits = (new.terms.max_tokens, new.default_max_tokens)
    terms = [getattr(spec.terms, name) for name in _FRAME_TERMS]
    template = (new.template.variables, new.template.has_answer_head, new.template.continues_last)
    own = (spec.fingerprint, embedding, frame, template, sampling, limits, terms, new.terms.caller, numbers_in(text))
    return blake2b(_encoder.encode(own), digest_size=_CIRCLE_BYTES).digest()
