"""Fields of OpenAI's, vLLM's and other servers' APIs that are not offered here: which are accepted, and which refused. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from actors.gateway.requests.refusals import invalid, json_text

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
    "add_special_tokens": (),
    "regex": (),
    "ebnf": (),
    "grammar": ("",),
    "json_schema": (),
    "format": ("",),
    "chat_template": (),
    "documents": ([],),
    "thinking_token_budget": (),
}
# Fields that clients of other servers send, and that are ignored here. Only these names are logged: any other name may be text
# that a client has written.
LOGGED_NAMES = frozenset(
    name
    for names in (
        ("request_id", "session_id", "cache_salt", "echo"),
        ("return_tokens_as_token_ids", "stream_interval", "repetition_detection", "extra_body"),
        ("kv_transfer_params", "vllm_xargs", "mm_processor_kwargs", "guided_decoding_backend", "guided_whitespace_pattern"),
        ("rid", "lora_path", "stream_reasoning"),
        ("options", "keep_alive", "think", "raw", "template", "system", "images", "context"),
        ("n_predict", "cache_prompt", "id_slot", "samplers", "mirostat", "mirostat_tau", "mirostat_eta", "typical_p", "tfs_z"),
        ("dry_multiplier", "xtc_probability", "n_probs", "timings_per_token", "top_a", "num_ctx", "num_predict"),
        ("thinking", "provider", "transforms", "route", "models", "plugins", "reasoning", "extra_headers"),
    )
    for name in names
)


def without_effect(name: str, value: Any, ignored: Collection[str], not_offered: Mapping[str, tuple[Any, ...]]) -> bool:
    """True for a field that is not offered, with a value that changes nothing. Raises: Refusal for any other value of one.

    The tables are those of the API: the fields of which any value is ignored, and those with the values that are accepted.
    """
    if name in ignored:
        return True
    if name not in not_offered:
        return False
    if value is not None and value not in not_offered[name]:
        wanted = " or ".join(dict.fromkeys(json_text(some) for some in (*not_offered[name], None)))
        raise invalid(name, f"{wanted} (anything else is not supported by this server)", value)
    return True
