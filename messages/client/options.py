"""Checks the options of a client's call before anything is sent; errors name the option. Pure."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, TypedDict, TypeVar, get_type_hints

import msgspec
import numpy as np

from messages import public
from messages.access.curve_keys import KEY_CHARACTERS
from messages.client.body import MOST_BYTES, body_of
from messages.client.wanted_kind import wanted_kind
from messages.errors import ConfigError, InvalidRequest
from messages.generation.sampling import Sampling, SamplingOptions
from messages.generation.terms import NO_TOKEN_LIMIT, Terms, TermsOptions
from messages.ids import mint_request_id
from messages.run_dir import run_dir_of, zeromq_endpoint, zeromq_endpoints_beside
from messages.wire.arrays import EMPTY_I32, MAX_ARRAY_ITEMS, int32s
from messages.wire.message import ShortText
from messages.wire.trace_context import TraceState, trace_caller_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
DEADLINE_S = 600.0
NO_DEADLINE = {"deadline_s": None}  # the option of a call that may take as long as it takes
_MOST_TOKEN = 2**31 - 1
_GOT_CHARACTERS = 120


class AnswerOptions(TypedDict, total=False):
    """What else a body of the HTTP API asks for; the names and meanings are its own, and the server checks the values."""

    n: Annotated[int, msgspec.Meta(ge=1)]  # answers
    best_of: Annotated[int, msgspec.Meta(ge=1)]  # so many are generated, and the likeliest `n` come; not of a chat
    echo: bool  # the prompt is repeated before the answer; not of a chat, which has all that follow
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    response_format: dict[str, Any]
    structured_outputs: dict[str, Any]
    chat_template_kwargs: dict[str, Any]
    reasoning_effort: str
    thinking_token_budget: int
    include_reasoning: bool
    separate_reasoning: bool
    add_generation_prompt: bool
    continue_final_message: bool


class Options(SamplingOptions, TermsOptions, AnswerOptions, total=False):
    """What every generating call takes besides its prompt.

    `deadline_s` bounds the whole call, 600 s unless given; None: no deadline. The server is told of a deadline that is given.
    """

    request: str  # the idempotency key; chosen at random unless given
    sampling: Sampling  # instead of its single fields; if no seed is given at all, it is derived from `request`
    model: str
    traceparent: str  # the headers of W3C Trace Context: the call belongs to the trace that they name
    tracestate: str


_OPTIONS = get_type_hints(Options)
_Z85 = frozenset(string.ascii_letters + string.digits + ".-:+=^!/*?&<>()[]{}@%$#")
_SAMPLING = Sampling.__struct_fields__
_MAX_TOKENS: Any = Annotated[int, msgspec.Meta(ge=0, le=NO_TOKEN_LIMIT)]  # 0: the prompt alone is of interest
_HINTS: dict[str, Any] = {
    name: hint for kind in (Sampling, Terms, AnswerOptions) for name, hint in get_type_hints(kind, include_extras=True).items()
}
_HINTS |= {"deadline_s": float | None, "max_tokens": _MAX_TOKENS | None, "request": ShortText, "model": ShortText}
_HINTS |= {"traceparent": ShortText, "tracestate": TraceState}
_BESIDE_BODY = ("request", "trace_id", "traceparent", "tracestate")  # options that are no fields of the body


def documents_options(function: _Function) -> _Function:
    """Decorates a function whose docstring has the word OPTIONS: the names of all options are put there."""
    function.__doc__ = (function.__doc__ or "").replace("OPTIONS", fill(", ".join(_OPTIONS), 110, subsequent_indent=" " * 8))
    return function


def endpoint_of(endpoint: str | None, port: int) -> str:
    """The endpoint of the server: `endpoint` if given, else that of `port` on this machine. Raises: ConfigError."""
    if endpoint in (None, ""):
        try:
            return zeromq_endpoint(run_dir_of(port))
        except ValueError as error:
            raise ConfigError(str(error)) from None
    if not isinstance(endpoint, str) or not endpoint.startswith(("ipc://", "tcp://")):
        expected = "expected ipc://PATH or tcp://HOST:PORT (or port=, the HTTP port of a server on this machine)"
        raise ConfigError(f"endpoint: {expected}, got {endpoint!r}")
    return endpoint


def endpoints_of(endpoint: str | Sequence[str] | None, port: int) -> list[str]:
    """The endpoints that a client was given, or the one of `port` on this machine; at least one. Raises: ConfigError."""
    if endpoint is None or not isinstance(endpoint, Sequence) or isinstance(endpoint, str):
        return [endpoint_of(endpoint, port)]
    if not endpoint:
        raise ConfigError("endpoint: expected at least one, got none")
    return [endpoint_of(one, port) for one in endpoint]


def gateways_of(endpoints: Sequence[str]) -> list[str]:
    """The endpoints of all gateways of a server, as far as they are known: the given ones and, where one of them is a gateway's
    "ipc://.../zeromq-N", those beside it, in the order of their numbers.
    """
    known = list(endpoints)
    for endpoint in endpoints:
        if endpoint.startswith("ipc://"):
            known += [one for one in zeromq_endpoints_beside(Path(endpoint.removeprefix("ipc://"))) if one not in known]
    return known


def server_key_of(key: str | None, endpoints: Sequence[str]) -> str:
    """The public key that a client was given for servers at these endpoints; "" without one. Raises: ConfigError."""
    if key is None or key == "":
        return ""
    if not isinstance(key, str) or len(key) != KEY_CHARACTERS or not set(key) <= _Z85:
        raise ConfigError(f"server_key: expected the {KEY_CHARACTERS} characters of `supervisor keys zeromq`, got another text")
    if not all(one.startswith("tcp://") for one in endpoints):
        raise ConfigError("server_key: expected none for an ipc:// endpoint, which is not encrypted, got one")
    return key


def absence_of(endpoint: str, has_server_key: bool = False) -> str:
    """The end of an error's sentence: why no server may answer at this endpoint, as far as this machine can tell."""
    if endpoint.startswith("tcp://"):
        wrong = "has another key than this server_key" if has_server_key else "may want its server_key"
        return f"; a server offers ZeroMQ over TCP only with --zeromq-port, which is not its HTTP port, or it {wrong}"
    path = endpoint.removeprefix("ipc://")
    if path.startswith("@") or Path(path).exists():  # a name without a file, or a server that does not answer
        return ""
    return (
        "; there is no such socket. A server on another port is Client(port=...). One of another user, with --run-dir or under"
        " systemd has another socket: pass its ZeroMQ endpoint, which `supervisor status --run-dir DIR` shows, as"
        " Client('ipc://...')"
    )


def deadline_of(options: Mapping[str, Any]) -> float | None:
    """Seconds for the whole call; None: no deadline. Raises: InvalidRequest."""
    deadline_s = _checked("deadline_s", options.get("deadline_s", DEADLINE_S))
    if deadline_s is not None and not deadline_s >= 0.0:
        raise InvalidRequest(f"expected a number of seconds from 0 on, or None, got {deadline_s!r}", "deadline_s")
    return deadline_s


def request_of(
    prompt: str | Iterable[int] | None,
    tokens: Iterable[int] | None,
    messages: Iterable[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> public.AnswersWanted:
    """The message of a call. Raises: InvalidRequest naming the option."""
    unknown = options.keys() - _OPTIONS.keys()
    if unknown:
        name = min(unknown)
        close = get_close_matches(name, _OPTIONS, n=1)
        wanted = "an option of this call" if close else f"one of {', '.join(sorted(_OPTIONS))}"
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InvalidRequest(f"expected {wanted}, got {name}{hint}", name)
    deadline_of(options)
    request = _checked("request", options.get("request", mint_request_id()))
    if not request:
        raise InvalidRequest("expected an id, got ''", "request")
    given = _given(options)
    asked, ids = _prompt(prompt, tokens, messages)
    return public.AnswersWanted(
        request=request,
        api="completion" if messages is None else "chat",
        body=body_of(asked, given),
        tokens=ids,
        is_repeated="request" in options,  # another process may have sent an id that was given
        trace_id=_checked("trace_id", options.get("trace_id", b"")),
        **_trace_of(options),
    )


def _trace_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the message about the trace of the caller."""
    given = {name: _checked(name, options[name]) for name in ("traceparent", "tracestate") if options.get(name)}
    if "traceparent" in given and trace_caller_of(given["traceparent"]) is None:
        raise InvalidRequest(f"expected 00-TRACE ID-SPAN ID-FLAGS, got {_short(given['traceparent'])}", "traceparent")
    return given


def _prompt(prompt: Any, tokens: Any, messages: Any) -> tuple[dict[str, Any], np.ndarray]:
    """The field of the prompt, and its token ids if it is given as such."""
    n_given = sum(given is not None for given in (prompt, tokens, messages))
    if n_given != 1:
        raise InvalidRequest(f"expected exactly one of prompt, tokens and messages, got {n_given}", "prompt")
    if messages is not None:
        return {"messages": _messages(messages)}, EMPTY_I32
    if isinstance(prompt, str):
        _check_size([prompt], "prompt")
        return {"prompt": prompt}, EMPTY_I32
    return {"prompt": []}, _ids(prompt, "prompt") if tokens is None else _ids(tokens, "tokens")


def _messages(messages: Any) -> list[dict[str, Any]]:
    """The messages of a conversation. The server knows more about what each may have."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise InvalidRequest(f"expected a list of {{'role': ..., 'content': ...}}, got {_short(messages)}", "messages")
    checked = []
    for index, message in enumerate(messages):
        name = f"messages[{index}]"
        if not isinstance(message, Mapping) or "role" not in message or not ("content" in message or "tool_calls" in message):
            raise InvalidRequest(f"expected {{'role': ..., 'content': ...}}, got {_short(message)}", name)
        _checked_as(ShortText, message["role"], f"{name}.role")
        _checked_as(str | list[dict[str, Any]] | None, message.get("content"), f"{name}.content")
        checked.append(dict(message))
    _check_size([one["content"] for one in checked if isinstance(one.get("content"), str)], "messages")
    return checked


def _ids(values: Any, name: str) -> np.ndarray:
    """Token ids as int32 [n]; n >= 1."""
    expected = "token ids" if name == "tokens" else "text or token ids"
    if isinstance(values, str | bytes | bytearray | Mapping) or not isinstance(values, Iterable):
        raise InvalidRequest(f"expected {expected}, got {_short(values)}", name)
    try:
        array = np.asarray(values if hasattr(values, "__array__") else list(values))
    except (ValueError, TypeError, OverflowError):
        raise InvalidRequest(f"expected {expected}, got {_short(values)}", name) from None
    if not array.size:
        raise InvalidRequest("expected at least one token, got none", name)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidRequest(f"expected {expected} in one flat list, got {_short(values)}", name)
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > _MOST_TOKEN:
        raise InvalidRequest(f"expected token ids from 0 to {_MOST_TOKEN}, got {low if low < 0 else high}", name)
    if len(array) > MAX_ARRAY_ITEMS - 1024:
        raise InvalidRequest(f"expected at most {MAX_ARRAY_ITEMS - 1024} token ids, got {len(array)}", name)
    return int32s(array)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are fields of the body, checked."""
    given = {name: value for name, value in options.items() if name not in _BESIDE_BODY}
    if not given.get("deadline_s", 1.0):  # none, or one that has passed before the server knows of it
        del given["deadline_s"]
    if isinstance(bias := given.get("logit_bias"), dict):  # ids may be numbers too
        given["logit_bias"] = {str(token): value for token, value in bias.items()}
    if isinstance(given.get("stop"), str):
        given["stop"] = [given["stop"]]
    if "sampling" in given:
        _check_sampling(given["sampling"], [name for name in _SAMPLING if name in given])
    return {name: value if name == "sampling" else _checked(name, value) for name, value in given.items()}


def _check_sampling(sampling: Any, singles: list[str]) -> None:
    if singles:
        raise InvalidRequest(f"expected sampling or single fields, got both sampling and {singles[0]}", "sampling")
    if not isinstance(sampling, Sampling):
        raise InvalidRequest(f"expected a Sampling, got {_short(sampling)}", "sampling")
    for name in _SAMPLING:
        _checked_as(_HINTS[name], getattr(sampling, name), f"sampling.{name}")


def _checked(name: str, value: Any) -> Any:
    return _checked_as(_HINTS[name], value, name)


def _checked_as(kind: Any, value: Any, name: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    try:
        value = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{wanted_kind(error)}, got {_short(value)}", name) from None
    _check_size([text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)], name)
    return value


def _check_size(texts: list[str], name: str) -> None:
    """Check the texts of the option `name`. Raises: InvalidRequest if they are too long in all, or no valid Unicode."""
    try:
        n_bytes = sum(len(text.encode()) for text in texts)
    except UnicodeEncodeError as error:
        detail = f"expected valid Unicode text, got {error.object[error.start]!r} at character {error.start}"
        raise InvalidRequest(detail, name) from None
    if n_bytes > MOST_BYTES:
        raise InvalidRequest(f"expected at most {MOST_BYTES} bytes of text, got {n_bytes}", name)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _GOT_CHARACTERS else text[:_GOT_CHARACTERS] + "…"
