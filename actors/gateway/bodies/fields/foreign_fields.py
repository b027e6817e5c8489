"""Fields of OpenAI's, vLLM's and other servers' APIs that are not offered here: which are accepted, and which refused. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import msgspec

from actors.gateway.bodies.fields.offered_fields import DEFAULTS, SAMPLING
from actors.gateway.requests.refusals import invalid, json_text

NEAR = 0.75  # how alike a field or a path must be to be proposed
# Fields that have no effect on the answer: any value is accepted.
IGNORED_FIELDS = frozenset(
    name
    for names in (
        ("user", "metadata", "store", "service_tier", "safety_identifier"),
        ("prompt_cache_key", "prompt_cache_retention", "parallel_tool_calls", "verbosity"),
    )
    for name in names
)
# Fields that are not offered, with the values that change nothing and so are accepted. None is always accepted.
NOT_OFFERED_FIELDS: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "moderation": (),
    "suffix": ("",),
    "length_penalty": (1, 1.0),
    "use_beam_search": (False,),
    "early_stopping": (False,),
    "spaces_between_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "add_special_tokens": (True,),
    "regex": (),
    "ebnf": (),
    "grammar": ("",),
    "json_schema": (),
    "format": ("",),
    "chat_template": (),
    "documents": ([],),
    "thinking_token_budget": (),
}
# Where a body does not have one of these, no value of it says the same as what its API does without it.
_OWN_DEFAULTS = ("temperature", "top_p", "seed")
# Fields of some endpoints, with the values that ask for nothing: where a body does not have the field, these are accepted.
NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    **{name: (value,) for name, value in DEFAULTS.items() if value is not None and name not in _OWN_DEFAULTS},
    "top_k": (DEFAULTS["top_k"], -1),
    "stop": ([], ""),
    "stop_token_ids": ([],),
    "response_format": ({"type": "text"},),
    "parallel_tool_calls": (True,),
    "tool_choice": ("auto",),
    "chat_template_kwargs": ({},),
    "add_generation_prompt": (True,),
    "include_reasoning": (True,),
    "separate_reasoning": (True,),
}
# Fields of other APIs that change an answer, and how the same is called here, as a path where it is a part of a field: ignoring
# them would answer something else.
NAMES_HERE: dict[str, tuple[str, ...]] = {
    "system": ("instructions", "messages", "prompt", "prompts"),
    "instructions": ("system", "messages", "prompt", "prompts"),
    "input": ("messages", "prompt", "prompts"),
    **dict.fromkeys(
        ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict", "n_predict"),
        ("max_tokens", "max_output_tokens", "options.num_predict"),
    ),
    "stop_sequences": ("stop", "options.stop"),
    **{name: (f"options.{name}",) for name in (*SAMPLING, "stop")},
    "repetition_penalty": ("options.repeat_penalty",),
    "response_format": ("text.format", "output_config.format", "format"),
    "reasoning_effort": ("reasoning.effort", "think"),
}
# Fields that clients of other servers send, and that are ignored here. Only these names are logged: any other name may be text
# that a client has written.
LOGGED_NAMES = frozenset(
    name
    for names in (
        ("request_id", "session_id", "echo", "tools", "context_management"),
        ("return_tokens_as_token_ids", "stream_interval", "repetition_detection", "extra_body"),
        ("kv_transfer_params", "vllm_xargs", "mm_processor_kwargs", "guided_decoding_backend", "guided_whitespace_pattern"),
        ("rid", "lora_path", "stream_reasoning"),
        ("options", "keep_alive", "think", "raw", "template", "images", "context"),
        ("cache_prompt", "id_slot", "samplers", "mirostat", "mirostat_tau", "mirostat_eta", "typical_p", "tfs_z"),
        ("dry_multiplier", "xtc_probability", "n_probs", "timings_per_token", "top_a", "num_ctx"),
        ("thinking", "provider", "transforms", "route", "models", "plugins", "reasoning", "extra_headers"),
        ("structured_outputs.whitespace_pattern", "tool_choice", *NAMES_HERE),
    )
    for name in names
)


def name_here(name: str, known: Collection[str]) -> str:
    """Where a body with the `known` fields has what the field `name` means in another API, as a path; "" if nowhere."""
    return next((own for own in NAMES_HERE.get(name, ()) if own.partition(".")[0] in known), "")


@cache
def names_of(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The fields that the body `kind` has. A set, because a body of 8 fields is looked up in the 45 of a completion."""
    return frozenset(kind.__struct_fields__)


def drop_unused(fields: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Remove fields that the body `kind` does not have, with values that change nothing.

    Raises: Refusal for a field that is not offered, with any other value.
    """
    ignored, not_offered = getattr(kind, "IGNORED", IGNORED_FIELDS), getattr(kind, "NOT_OFFERED", NOT_OFFERED_FIELDS)
    known = names_of(kind)
    for name in [name for name in fields if name not in known]:
        if without_effect(name, fields[name], ignored, not_offered) or _is_neutral(name, fields[name]):
            del fields[name]
    if fields.get("logprobs") is False:  # a number at completions
        del fields["logprobs"]


def _is_neutral(name: str, value: Any) -> bool:
    neutral = NEUTRAL_VALUES.get(name, ())
    return any(value == some and isinstance(value, bool) is isinstance(some, bool) for some in neutral)  # 1 equals true


def without_effect(name: str, value: Any, ignored: Collection[str], not_offered: Mapping[str, tuple[Any, ...]]) -> bool:
    """True for a field that is not offered, with a value that changes nothing. Raises: Refusal for any other value of one.

    The tables are those of the API: fields whose value is always ignored, and fields with the values that are accepted.
    """
    if name in ignored:
        return True
    if name not in not_offered:
        return False
    if value is not None and value not in not_offered[name]:
        wanted = " or ".join(dict.fromkeys(json_text(some) for some in (*not_offered[name], None)))
        raise invalid(name, f"{wanted} (anything else is not supported by this server)", value)
    return True
