"""`LLM`: a model in this program, computed by a private server that ends with it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, overload

from messages.client import AsyncClient, Client
from messages.client.answer import Answer
from messages.client.options import NO_DEADLINE, documents_options
from messages.errors import InvalidRequest
from messages.local.batch import answers_of, while_served
from messages.local.private_server import START_S, PrivateServer

MOST_AT_ONCE = 256  # calls that the server has at a time; the others wait here, in order

Conversation = Sequence[Mapping[str, Any]]  # {"role": ..., "content": ...}, one after the other


class LLM:
    """A model for the length of a `with`, or of this object. Calls may come from any thread.

    `client`: the client library's client of the server, for streams and all other calls. `server`: where it is.
    """

    def __init__(
        self, model: str = "", *, start_timeout_s: float = START_S, verbose: bool = False, **options: Any
    ) -> None:  # fmt: skip
        """Start a server for `model`, named as for `supervisor start --model`; "": the small model that a package ships.

        `options`: the other flags of `supervisor start`: `max_length=2048`, `gpus=0`, `speculation=False`,
        `set={"worker.threads": 2}`. `start_timeout_s`: seconds until it has to serve, a download included. `verbose`: the
        server's log and progress go to standard error.
        Raises: ConfigError when they cannot be used, Unavailable when the server does not start.
        """
        self.server = PrivateServer(model, start_timeout_s=start_timeout_s, verbose=verbose, **options)
        self.client = Client(self.server.endpoint)

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the server. Calls of other threads end with Unavailable."""
        self.client.close()
        self.server.close()

    @overload  # a str is also a Sequence[str], but comes first
    def generate(  # pyright: ignore[reportOverlappingOverload]
        self, prompts: str, *, progress: bool | None = None, **options: Any
    ) -> Answer: ...
    @overload
    def generate(
        self, prompts: Sequence[str] | Sequence[Sequence[int]], *, progress: bool | None = None, **options: Any
    ) -> list[Answer]: ...

    @documents_options
    def generate(self, prompts: Any, *, progress: bool | None = None, **options: Any) -> Answer | list[Answer]:
        """The answer to a text, or those to a list of texts or of lists of token ids, in their order.

        With `n` an answer has the others in `choices`. `progress`: a bar on standard error; None: for lists on a terminal or
        in a notebook.
        Options: OPTIONS. There is no deadline unless one is given.
        Raises: InvalidRequest; ClientError, of a list the first one, with a note that has its index.
        """
        if isinstance(prompts, str):
            return self._all([prompts], options, is_chat=False, progress=bool(progress))[0]
        asked = list(prompts)
        if any(isinstance(one, int) for one in asked):
            raise InvalidRequest(
                "expected a text, or a list of texts or of lists of token ids, got a list of numbers", "prompts"
            )
        return self._all(asked, options, is_chat=False, progress=_is_shown(progress))

    @overload
    def chat(self, messages: Conversation, *, progress: bool | None = None, **options: Any) -> Answer: ...
    @overload
    def chat(self, messages: Sequence[Conversation], *, progress: bool | None = None, **options: Any) -> list[Answer]: ...

    @documents_options
    def chat(
        self, messages: Conversation | Sequence[Conversation], *, progress: bool | None = None, **options: Any
    ) -> Answer | list[Answer]:
        """The answer to a conversation of {"role": ..., "content": ...}, or those to a list of conversations, in their order.

        `progress`, options, errors: as for `generate`. Options: OPTIONS.
        """
        asked: list[Any] = list(messages)
        if all(isinstance(one, Mapping) for one in asked):
            return self._all([asked], options, is_chat=True, progress=bool(progress))[0]
        return self._all(asked, options, is_chat=True, progress=_is_shown(progress))

    def _all(self, asked: list[Any], options: dict[str, Any], *, is_chat: bool, progress: bool) -> list[Answer]:
        options = {**NO_DEADLINE, **options}
        if options.get("request") and len(asked) > 1:
            raise InvalidRequest("expected none for a list: each of its requests has its own, got one", "request")

        def work(client: AsyncClient, on_answer: Callable[[Answer], None]) -> Coroutine[Any, Any, list[Answer]]:
            call = client.chat if is_chat else client.generate
            answers = answers_of([partial(call, one, **options) for one in asked], MOST_AT_ONCE, on_answer)
            return while_served(answers, self.server.ended())

        with _bar(len(asked), progress) as on_answer:
            return self.client.run(partial(work, on_answer=on_answer))


def _is_shown(progress: bool | None) -> bool:
    """By default a bar is shown on a terminal and in a notebook, whose kernel has loaded `ipykernel`."""
    return (sys.stderr.isatty() or "ipykernel" in sys.modules) if progress is None else progress


@contextlib.contextmanager
def _bar(n_calls: int, is_shown: bool) -> Iterator[Callable[[Answer], None]]:
    """What shows that an answer has come: a bar on standard error, with the tokens per second so far."""
    if not is_shown:
        yield lambda answer: None
        return
    from tqdm.auto import tqdm  # also for notebooks; a tenth of a second that calls without a bar do not need

    n_tokens, began_s = 0, time.monotonic()
    with tqdm(total=n_calls, unit=" prompts", dynamic_ncols=True, file=sys.stderr) as bar:

        def show(answer: Answer) -> None:
            nonlocal n_tokens
            n_tokens += sum(len(one.tokens) for one in answer.choices)
            bar.set_postfix_str(f"{n_tokens / max(time.monotonic() - began_s, 1e-3):.0f} tokens/s", refresh=False)
            bar.update()

        yield show
