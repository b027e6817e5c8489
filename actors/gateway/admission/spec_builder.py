"""Validates and tokenises the requests of all APIs: a new request becomes a `RequestSpec`, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.admission.prompt_encoder import PromptEncoder, int32_ids
from actors.gateway.admission.sampling_defaults import sampling_defaults
from actors.gateway.admission.splitting import splitting_of
from actors.gateway.admission.thinking_budget import with_budget
from actors.gateway.admission.token_rules import bad_tokens_of, check_choice, check_grammar_alone, check_rules
from actors.gateway.admission.tool_grammar import check_schemas, schema_at_fault, with_calls
from actors.gateway.admission.unwritable import check_characters
from actors.gateway.requests.model_names import check_model
from actors.gateway.requests.refusals import Refusal, invalid, prompt_too_long
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.detokenizer import texts_of
from actors.gateway.text.grammar_compiler import NoCompiler, grammar_compiler
from actors.gateway.text.grammars import GrammarError
from actors.gateway.text.models.text_model import TextModel
from actors.gateway.text.reasoning_text import ReasoningMarks
from actors.gateway.text.template_options import TemplateOptions
from messages.generation.grammar import Grammar
from messages.generation.sampling import Sampling
from messages.generation.terms import MAX_STOP_STRINGS, MAX_STOP_TOKENS, NO_TOKEN_LIMIT, Terms
from messages.wire.message import MAX_SHORT_CHARACTERS

_MOST_PROMPT_LOGPROBS = 2_000_000  # numbers: 8 MB, the half of what a ZeroMQ client takes in one message
_PROMPTS_A_TURN = 256  # checked without a turn of the event loop: 3 ms
_NO_COMPILER_RETRY_S = 5.0


class SpecBuilder:
    """Checks and tokenises requests for one served model."""

    def __init__(self, settings: GatewaySettings, model: TextModel, fingerprint: str = "") -> None:
        """`fingerprint`: the one that every specification records."""
        self._settings, self._fingerprint = settings, fingerprint
        self.encoder = PromptEncoder(model, settings.max_length)
        self.sampling_defaults = sampling_defaults(settings)

    async def build(self, new: NewRequest, created_s: float) -> RequestSpec:
        """Tokenise a request that `validate` has passed. Long texts are encoded in a thread. `created_s` is Unix time. Raises:
        Refusal naming the field."""
        prompts = await self._tokens(new)
        splitting = splitting_of(new, prompts[0], self.encoder.model)
        reasoning = splitting.reasoning if splitting is not None else None
        grammar = await self._grammar(new, reasoning)
        terms = self._terms(new, prompts, grammar, await bad_tokens_of(new.terms, self.encoder))
        if (bounded := await with_budget(grammar, new, reasoning, self.encoder)) is not grammar:
            terms = msgspec.structs.replace(terms, grammar=bounded)
        check_choice(terms, self.encoder.model.vocabulary)
        return RequestSpec(
            request=new.request,
            api=new.api,
            created_s=created_s,
            prompts=[prompt.tobytes() for prompt in prompts],
            sampling=self._sampling(new),
            terms=terms,
            n=new.n,
            is_whole=new.is_whole,
            is_resumable=new.is_resumable,
            ends_with_client=new.ends_with_client,
            digest=new.digest,
            answer_id=new.answer_id,
            correlation_id=new.correlation_id,
            trace=new.trace,
            with_usage=new.with_usage,
            with_running_usage=new.with_running_usage,
            echo=await self._echo(new, prompts),
            shown_prompt_logprobs=new.shown_prompt_logprobs,
            with_token_ids=new.with_token_ids,
            has_answer=new.has_answer,
            ignored_fields=new.ignored_fields,
            best_of=new.best_of,
            batch_size=new.batch_size,
            response=new.response,
            splitting=splitting,
            fingerprint=self._fingerprint,
            model_name=self._settings.model_name,
        )

    def validate(self, new: NewRequest) -> None:
        """Check everything that can be checked without the tokens. Raises: Refusal naming the field."""
        settings = self._settings
        check_model(new.model, settings)
        if not 1 <= new.n <= settings.max_n:
            raise invalid(new.n_field, f"1 to {settings.max_n}", new.n)
        if new.n_sequences > settings.max_active_requests:
            most = f"at most {settings.max_active_requests} sequences (prompts times n)"
            raise invalid(new.prompt_field, most, new.n_sequences)
        if len(new.terms.stop) > MAX_STOP_STRINGS:
            raise invalid(new.stop_field, f"at most {MAX_STOP_STRINGS} strings", len(new.terms.stop))
        for stop in new.terms.stop:
            if not 1 <= len(stop) <= MAX_SHORT_CHARACTERS:
                raise invalid(new.stop_field, f"strings of 1 to {MAX_SHORT_CHARACTERS} characters", stop)
        room = MAX_STOP_TOKENS - len(self.encoder.model.eos_tokens)
        if len(new.terms.stop_tokens) > room:
            raise invalid("stop_token_ids", f"at most {room} ids", len(new.terms.stop_tokens))
        for token in new.terms.stop_tokens:
            if not 0 <= token < self.encoder.model.vocabulary:
                raise invalid("stop_token_ids", f"ids from 0 to {self.encoder.model.vocabulary - 1}", token)
        check_rules(new.terms, self.encoder.model.vocabulary)

    async def _tokens(self, new: NewRequest) -> list[np.ndarray]:
        """The prompts as int32 [n] each, n >= 1. Each is cut to the tokens that the client wants to keep."""
        field, kept = new.prompt_field, self._kept_tokens(new)
        if new.ids is not None:
            return [ids[-kept:] for ids in await self._checked(new.ids, field)]
        if new.turns is not None:
            tools = new.tools.as_openai() if new.tools is not None else ()
            options = self._template_options(new)
            encoded = [await self.encoder.encode_chat(new.turns, field, tools, options, caller=new.terms.caller)]
        else:
            texts = new.texts or ()
            if not kept:
                self._check_lengths(texts, field)
            encoded = await self.encoder.encode(texts, field, caller=new.terms.caller)
        if not encoded:
            raise invalid(field, "at least one prompt", [])
        for ids in encoded:
            if not ids:
                raise invalid(field, "at least one token", "")
            self._check_length(min(len(ids), kept or len(ids)), field)
        return [int32_ids(ids[-kept:]) for ids in encoded]

    def _kept_tokens(self, new: NewRequest) -> int:
        """How many tokens of a prompt count, the last ones; 0: all. Raises: Refusal."""
        kept, field = new.terms.truncate_prompt_tokens, "truncate_prompt_tokens"
        if kept is None:
            return 0
        if kept == 0:
            raise invalid(field, "at least 1, or -1 for as many as have room", kept)
        if kept > 0:
            return kept
        wanted = new.default_max_tokens if new.terms.max_tokens == NO_TOKEN_LIMIT else new.terms.max_tokens
        room = 1 if wanted == NO_TOKEN_LIMIT else max(wanted, 1)
        return max(1, self._settings.max_length - room)

    async def _echo(self, new: NewRequest, prompts: Sequence[np.ndarray]) -> list[str]:
        """The texts of the prompts if they are to be repeated, else []. Of token ids, the text as an answer would have it."""
        if not new.echo or new.texts is not None:
            return list(new.texts or ()) if new.echo else []
        texts = []
        for prompt in prompts:
            texts.append("".join(texts_of(self.encoder.model.detokenizer(prompt[:0]), prompt.tolist())))
            await asyncio.sleep(0)
        return texts

    def _sampling(self, new: NewRequest) -> Sampling:
        """The sampling of the request, with the defaults of this server where it gives none."""
        used = {name: value for name, value in self.sampling_defaults.items() if name in new.defaulted}
        return msgspec.structs.replace(new.sampling, **used) if used else new.sampling

    def _template_options(self, new: NewRequest) -> TemplateOptions:
        """What the request says about the template, beside what the operator says."""
        own = self._settings.chat_template_kwargs
        return replace(new.template, variables={**own, **new.template.variables}) if own else new.template

    async def _checked(self, ids: Sequence[Sequence[int] | np.ndarray], field: str) -> list[np.ndarray]:
        prompts: list[np.ndarray] = []
        for one in ids:
            prompts.append(self.encoder.check_ids(one, field))
            if not len(prompts) % _PROMPTS_A_TURN:
                await asyncio.sleep(0)
        return prompts

    def _check_lengths(self, texts: Sequence[str], field: str) -> None:
        """Refuse a text that can never fit, without encoding it."""
        fewest, limit = max(map(self.encoder.model.fewest_tokens, texts), default=0), self._settings.max_length
        if fewest >= limit:
            raise prompt_too_long(field, limit, fewest, is_estimate=True)

    def _check_length(self, n_tokens: int, field: str) -> None:
        """Refuse a prompt that leaves no room. Before it becomes an array: that takes a list of millions of ids 100 ms."""
        limit = self._settings.max_length
        if n_tokens >= limit:
            raise prompt_too_long(field, limit, n_tokens)

    def _terms(
        self, new: NewRequest, prompts: Sequence[np.ndarray], grammar: Grammar | None, bad_tokens: list[list[int]]
    ) -> Terms:
        """The client's terms, completed by the server: the token limit, the end tokens, bad words as tokens, the group size,
        and with whom its caches are shared."""
        terms = new.terms
        max_tokens = self._max_tokens(new, prompts)
        eos_tokens = [] if terms.ignore_eos and grammar is None else self.encoder.model.eos_tokens
        reads_groups = new.is_whole and not terms.stop and new.sampling.logprobs < 0  # no need to look at single tokens
        if terms.prompt_logprobs >= 0:
            for prompt in prompts:
                _check_prompt_logprobs(len(prompt), terms.prompt_logprobs)
        # some dialects begin a call with a special token
        hides_special = terms.skip_special_tokens and (new.tools is None or not self.encoder.model.dialect.has_special_marks)
        return msgspec.structs.replace(
            terms,
            skip_special_tokens=hides_special,
            max_tokens=max_tokens,
            grammar=grammar,
            bad_tokens=bad_tokens,
            stop_tokens=sorted({*eos_tokens, *terms.stop_tokens}),
            group_tokens=self._settings.whole_tokens if reads_groups else 1,
            cache_scope=terms.caller if self._settings.names_callers else b"",
        )

    async def _grammar(self, new: NewRequest, reasoning: ReasoningMarks | None) -> Grammar | None:
        """The grammar that ranks follow, once the reasoning has ended; None without one."""
        wanted, field, model = new.terms.grammar, new.grammar_field, self.encoder.model
        if new.tools is not None:
            wanted, field = with_calls(wanted, field, new.tools, model.dialect)
        if wanted is None:
            return None
        check_grammar_alone(new.terms, field)
        if not model.takes_grammars:
            raise Refusal("invalid", f"{field}: expected none for a model without a tokenizer or end token", field=field)
        try:
            return await self._compiled(new, wanted, field, reasoning)
        except NoCompiler as error:
            detail = f"the machine cannot start a process that compiles the grammar of this request now: {error}"
            raise Refusal("unavailable", detail, retry_after_s=_NO_COMPILER_RETRY_S) from None

    async def _compiled(self, new: NewRequest, wanted: Grammar, field: str, reasoning: ReasoningMarks | None) -> Grammar:
        """The grammar `wanted` in the form that ranks follow. `field`: what asks for it. Raises: Refusal, NoCompiler."""
        try:
            check_characters(new.terms.grammar, new.tools, self.encoder.model.missing_bytes)
            if new.tools is not None:
                await check_schemas(new.terms.grammar, new.tools, new.terms.caller)
            return await grammar_compiler().compile(wanted, reasoning, new.terms.caller)
        except GrammarError as error:
            why: str | GrammarError = error
            if new.tools is not None and (found := await schema_at_fault(new.tools, new.terms.caller))[0]:
                field, why = found
            raise Refusal(
                "invalid", f"{field}: expected a grammar that this server can enforce, got: {why}", field=field
            ) from None

    def _max_tokens(self, new: NewRequest, prompts: Sequence[np.ndarray]) -> int:
        longest, limit = max(map(len, prompts)), self._settings.max_length
        self._check_length(longest, new.prompt_field)
        wanted = new.terms.max_tokens
        if wanted == NO_TOKEN_LIMIT:
            return min(new.default_max_tokens, limit - longest)
        if wanted < 1:
            raise invalid(new.max_tokens_field, "at least 1", wanted)
        if longest + wanted > limit:
            room = f"at most {limit - longest} (this model's context is {limit} tokens, and the prompt has {longest})"
            raise Refusal("too_long", f"{new.max_tokens_field}: expected {room}, got {wanted}", field=new.max_tokens_field)
        return wanted


def _check_prompt_logprobs(n_tokens: int, width: int) -> None:
    """Refuse log probabilities of a prompt that are too many for one message."""
    most = (_MOST_PROMPT_LOGPROBS // n_tokens - 2) // 2  # of each token its own and its rank, and `width` pairs
    if width > max(most, -1):
        raise invalid("prompt_logprobs", f"at most {most} for a prompt of {n_tokens} tokens" if most >= 0 else "none", width)
