"""Checks a request's rules for single tokens, and makes tokens of its bad words.

The rules are `logit_bias`, `allowed_token_ids` and `bad_words`. A bad word is banned as the tokens that the
tokenizer makes of it, at the beginning of a text and after a space, as in vLLM. The same text in other tokens can still come.
"""

from __future__ import annotations

from actors.gateway.admission.prompt_encoder import PromptEncoder
from actors.gateway.requests.refusals import Refusal, invalid
from messages.generation.terms import MAX_BAD_TOKENS, Terms


def check_rules(terms: Terms, vocabulary: int) -> None:
    """Check what can be checked without a tokenizer. Raises: Refusal naming the field."""
    for key in terms.logit_bias:
        if not (key.isdecimal() and key == str(int(key)) and int(key) < vocabulary):
            raise invalid("logit_bias", f"token ids from 0 to {vocabulary - 1} as keys", key)
    if terms.allowed_token_ids is not None and max(terms.allowed_token_ids) >= vocabulary:
        raise invalid("allowed_token_ids", f"ids from 0 to {vocabulary - 1}", max(terms.allowed_token_ids))
    if any(not word.strip() for word in terms.bad_words):
        raise invalid("bad_words", "texts of at least one character that is no space", terms.bad_words)


def check_beside_grammar(terms: Terms, grammar_field: str) -> None:
    """Refuse rules that could forbid every token that a grammar allows. grammar_field: the client's name of the field that asks
    for the grammar. Raises: Refusal naming the field of the rule."""
    for field, is_given in (("allowed_token_ids", terms.allowed_token_ids), ("bad_words", terms.bad_words)):
        if is_given:
            wanted = f"expected none beside {grammar_field}, which may need such a token"
            raise Refusal("invalid", f"{field}: {wanted}", field=field)


def check_grammar_alone(terms: Terms, grammar_field: str) -> None:
    """As `check_beside_grammar`, for a grammar of the whole answer, which also decides when that may end. Raises: Refusal."""
    check_beside_grammar(terms, grammar_field)
    if terms.min_tokens:
        raise invalid("min_tokens", f"0 beside {grammar_field}", terms.min_tokens)


async def bad_tokens_of(terms: Terms, encoder: PromptEncoder) -> list[list[int]]:
    """The sequences of tokens that the bad words of a request are, each once. Raises: Refusal."""
    if not terms.bad_words:
        return []
    texts = [before + word.lstrip() for word in terms.bad_words for before in ("", " ")]
    encoded = await encoder.encode(texts, "bad_words", caller=terms.caller, add_special_tokens=False)
    if (n_tokens := sum(map(len, encoded))) > MAX_BAD_TOKENS:
        wanted = f"words of at most {MAX_BAD_TOKENS} tokens in all, at the beginning of a text and after a space"
        raise invalid("bad_words", wanted, n_tokens)
    return [list(ids) for ids in dict.fromkeys(map(tuple, encoded)) if ids]


def check_choice(terms: Terms, vocabulary: int) -> None:
    """Refuse rules that could leave no token to choose, or more tokens than there may be. terms: complete. Raises: Refusal."""
    if terms.min_tokens > terms.max_tokens:
        wanted = f"at most {terms.max_tokens}, the most tokens that may be generated"
        raise invalid("min_tokens", wanted, terms.min_tokens)
    if not terms.bad_tokens and terms.allowed_token_ids is None and not terms.min_tokens:
        return
    forbidden = {bad[-1] for bad in terms.bad_tokens}
    if terms.min_tokens:
        forbidden.update(terms.stop_tokens)
    field = "bad_words" if terms.allowed_token_ids is None else "allowed_token_ids"
    allowed = range(vocabulary) if terms.allowed_token_ids is None else terms.allowed_token_ids
    if len(forbidden) >= len(allowed) and forbidden.issuperset(allowed):
        raise Refusal(
            "invalid", f"{field}: expected a choice of tokens, got only ones that bad_words or min_tokens forbid", field=field
        )
