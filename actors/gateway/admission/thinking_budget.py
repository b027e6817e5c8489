"""A limit for the reasoning of an answer, as ranks follow it."""

from __future__ import annotations

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.admission.prompt_encoder import PromptEncoder
from actors.gateway.admission.token_rules import check_beside_grammar
from actors.gateway.requests.refusals import Refusal, invalid
from actors.gateway.text.grammars import GrammarError, check_length
from actors.gateway.text.reasoning_text import ReasoningMarks
from messages.generation.grammar import BoundedThinking, Grammar


async def with_budget(
    grammar: Grammar | None, new: NewRequest, marks: ReasoningMarks | None, encoder: PromptEncoder
) -> Grammar | None:
    """The grammar of the answers, with the limit that the request sets for their reasoning, if it does.

    grammar: compiled; None: any text. marks: of the reasoning; None: it is not looked for. The marks are the tokens that the
    tokenizer makes of them. A model without reasoning has nothing to limit. Raises: Refusal naming the field."""
    field, n_tokens = new.reasoning.budget_field, new.reasoning.budget_tokens
    if n_tokens is None:
        return grammar
    if n_tokens < 0:
        raise invalid(field, "0 or more", n_tokens)
    if not new.reasoning.is_split:
        raise invalid(field, "none beside separate_reasoning: false", n_tokens)
    if marks is None or not encoder.model.takes_grammars:
        return grammar
    check_beside_grammar(new.terms, field)
    begin, end = await encoder.encode([marks.begin, marks.end], field, add_special_tokens=False)
    text = grammar.text if grammar is not None else ""
    bounded = BoundedThinking(n_tokens, [] if marks.is_open else begin, end, marks.end, text).as_grammar()
    try:
        check_length(bounded.text)
    except GrammarError as error:
        raise Refusal("invalid", f"{new.grammar_field}: expected a grammar that fits beside {field}, got {error}") from None
    return bounded
