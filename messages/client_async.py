"""The async client: calls, streams, deadlines. `messages.client` is the door to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from messages import public
from messages.arrays import int32s
from messages.client_connection import Connection
from messages.client_stream import Answer, Piece, StreamState, error_of
from messages.faults import DeadlineExceeded, InvalidRequest, Unavailable
from messages.generation import Sampling
from messages.ids import mint_request_id, mint_seed
from messages.run_dir import DEFAULT_PORT, front_endpoint, run_dir_of

_CALL_S = 10.0
DEFAULT_DEADLINE_S = 600.0
DEFAULT_ACCEPT_S = 30.0  # longest wait until somebody takes a request


class TokenStream:
    """An async iterator of pieces. Ends after the last one; `answer()` is then the whole."""

    def __init__(self, connection: Connection, generate: public.Generate, deadline_s: float, accept_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._connection, self._state = connection, StreamState(generate)
        self._began_s = loop.time()
        self._until_s = self._began_s + deadline_s
        self._accepted_until_s = self._began_s + min(accept_s, deadline_s)
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pieces: list[Piece] = []
        self._first_s = 0.0
        self._ended_s = 0.0
        connection.start(self._state, self._on_news)

    @property
    def request(self) -> str:
        """The request's id."""
        return self._state.request

    def __aiter__(self) -> TokenStream:
        return self

    async def __anext__(self) -> Piece:
        """Raises: what `messages.faults.ClientError` says, among them DeadlineExceeded."""
        state = self._state
        while True:
            piece = state.take()
            if piece is not None:
                self._pieces.append(piece)
                self._connection.taken(state)
                return piece
            if state.is_over:
                self._leave()
                if state.error is not None:
                    raise state.error
                raise StopAsyncIteration
            await self._wait()

    async def cancel(self) -> None:
        """The answer is not wanted any more; the stream ends with reason "cancelled" (or as it just did)."""
        if not self._state.is_over:
            self._connection.cancel(self._state)

    async def answer(self) -> Answer:
        """Read what is left and give the whole answer."""
        async for _ in self:
            pass
        finished = self._state.finished
        assert finished is not None, "the stream has ended well"
        return Answer(
            request=self.request,
            ids=[token for piece in self._pieces for token in piece.ids.tolist()],
            text="".join(piece.text for piece in self._pieces),
            reason=finished.reason,
            n_prompt=finished.n_prompt,
            n_generated=finished.n_generated,
            n_cached=finished.n_cached,
            latency_s=self._ended_s - self._began_s,
            first_token_s=(self._first_s or self._ended_s) - self._began_s,
            pieces=tuple(self._pieces),
        )

    async def aclose(self) -> None:
        """Leave the stream; an unfinished request is cancelled."""
        await self.cancel()
        self._leave()

    def _leave(self) -> None:
        self._connection.forget(self._state)

    def _on_news(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._first_s and self._state.n_arrived:
            self._first_s = now_s
        if not self._ended_s and self._state.is_over:
            self._ended_s = now_s
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        is_accepted = self._state.accepted is not None or self._state.n_arrived > 0
        until_s = self._until_s if is_accepted else self._accepted_until_s
        if loop.time() >= until_s:
            await self.aclose()
            if is_accepted or until_s >= self._until_s:
                raise DeadlineExceeded(f"{self.request}: expected its end within {self._until_s - self._began_s:g} s")
            detail = "nobody took the request" if self._connection.was_heard else "nobody answers"
            raise Unavailable(f"{self._connection.endpoint}: {detail} within {until_s - self._began_s:g} s")
        self._waiter = loop.create_future()
        timer = loop.call_at(until_s, self._wake)
        try:
            await self._waiter
        except asyncio.CancelledError:
            await self.aclose()
            raise
        finally:
            timer.cancel()
            self._waiter = None


class AsyncClient:
    """A client of one server. `endpoint` "" is the server on `port` of this machine.

    async with AsyncClient() as client:
        async for piece in client.stream("Once upon a time"):
            print(piece.text, end="")
    """

    def __init__(self, endpoint: str = "", *, port: int = DEFAULT_PORT, accept_s: float = DEFAULT_ACCEPT_S) -> None:
        self.endpoint = endpoint or front_endpoint(run_dir_of(port))
        self._accept_s = accept_s
        self._made: Connection | None = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Requests that still run go on at the server for a while."""
        if self._made is not None:
            await self._made.close()
            self._made = None

    @property
    def _connection(self) -> Connection:
        if self._made is None:
            self._made = Connection(self.endpoint)
        return self._made

    def stream(
        self,
        prompt: str | None = None,
        *,
        tokens: Iterable[int] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        deadline_s: float = DEFAULT_DEADLINE_S,
        **options: Any,
    ) -> TokenStream:
        """Generate from a text, token ids or a conversation, piece by piece. Call it inside a running loop.

        `options`: max_tokens, temperature, top_p, top_k, seed, presence_penalty, frequency_penalty, repetition_penalty,
        logprobs; or sampling (a `Sampling`); stop, stop_tokens, ignore_eos, model, request (the idempotency key).

        Raises: InvalidRequest; while iterating also Overloaded, Unavailable, DeadlineExceeded, RequestFailed.
        """
        generate = _generate_of(prompt, tokens, messages, dict(options))
        return TokenStream(self._connection, generate, deadline_s, self._accept_s)

    async def generate(self, prompt: str | None = None, **options: Any) -> Answer:
        """The whole answer; arguments and errors as for `stream`."""
        return await self.stream(prompt, **options).answer()

    async def chat(self, messages: Sequence[Mapping[str, Any]] | str, **options: Any) -> Answer:
        """The answer to a conversation ([{"role", "content"}, ...], or one user's words)."""
        turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return await self.stream(messages=turns, **options).answer()

    async def cancel(self, request: str) -> None:
        """Cancel a request by its id. Returns at once; its stream ends with reason "cancelled"."""
        self._connection.cancel_by_id(request)

    async def models(self, *, deadline_s: float = _CALL_S) -> list[str]:
        """Names of the served models."""
        answer = await self._call(public.ModelsWanted(call=mint_request_id()), deadline_s)
        assert isinstance(answer, public.Models)
        return answer.names

    async def stats(self, *, deadline_s: float = _CALL_S) -> dict[str, Any]:
        """The server's summary, as /v1/metrics has it."""
        answer = await self._call(public.StatsWanted(call=mint_request_id()), deadline_s)
        assert isinstance(answer, public.Stats)
        return json.loads(answer.summary)

    async def _call(self, message: public.ModelsWanted | public.StatsWanted, deadline_s: float) -> Any:
        connection = self._connection
        try:
            answer = await asyncio.wait_for(connection.call(message), deadline_s)
        except TimeoutError:
            raise Unavailable(f"{self.endpoint}: nobody answers within {deadline_s:g} s") from None
        if isinstance(answer, public.Failed):
            raise error_of(answer)
        return answer


_SAMPLING_FIELDS = frozenset(Sampling.__struct_fields__)
_GENERATE_FIELDS = frozenset(("max_tokens", "stop", "stop_tokens", "ignore_eos", "model", "request"))


def _generate_of(
    prompt: str | None,
    tokens: Iterable[int] | None,
    messages: Sequence[Mapping[str, Any]] | None,
    options: dict[str, Any],
) -> public.Generate:
    """Raises: InvalidRequest naming the argument."""
    unknown = options.keys() - _SAMPLING_FIELDS - _GENERATE_FIELDS - {"sampling"}
    if unknown:
        raise InvalidRequest(f"expected one of {sorted(_SAMPLING_FIELDS | _GENERATE_FIELDS)}", sorted(unknown)[0])
    chosen = {name: options.pop(name) for name in list(options) if name in _SAMPLING_FIELDS}
    sampling = options.pop("sampling", None)
    if sampling is None:
        sampling = Sampling(**{"seed": mint_seed(), **{k: v for k, v in chosen.items() if v is not None}})
    elif chosen:
        raise InvalidRequest("expected either sampling or its single fields, got both", "sampling")
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    options = {"request": mint_request_id()} | {name: value for name, value in options.items() if value is not None}
    if tokens is not None:
        try:
            options["tokens"] = int32s(tokens)
        except (OverflowError, ValueError, TypeError) as error:
            raise InvalidRequest(f"expected token ids: {error}", "tokens") from None
    if messages is not None:
        options["turns"] = [_turn(message, index) for index, message in enumerate(messages)]
    return public.Generate(prompt=prompt, sampling=sampling, **options)


def _turn(message: Mapping[str, Any], index: int) -> public.ChatTurn:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not isinstance(content, str):
        raise InvalidRequest('expected {"role": text, "content": text}', f"messages[{index}]")
    return public.ChatTurn(role=role, content=content)
