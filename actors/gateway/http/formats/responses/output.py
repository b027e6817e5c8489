"""The output items of a split answer of /v1/responses, token by token: reasoning, messages, calls of tools. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import msgspec

from actors.gateway.bodies.fields.told_tools import CalledTool, called_tools, custom_input
from actors.gateway.http.formats.openai_logprobs import logprobs_json
from actors.gateway.requests.request import GrowingSequence
from actors.gateway.requests.split_text import SplitText
from actors.gateway.requests.tool_calls import ToolCall, call_id
from actors.gateway.text.models.text_model import TextModel
from actors.gateway.text.pieces import Channel, TextPiece


class ItemKind(StrEnum):
    """The type of an item."""

    REASONING = "reasoning"
    MESSAGE = "message"
    CALL = "function_call"
    CUSTOM_CALL = "custom_tool_call"

    @property
    def is_call(self) -> bool:
        """True for calls of the client's tools."""
        return self in (ItemKind.CALL, ItemKind.CUSTOM_CALL)


class ItemChange(Enum):
    """What happens to an item."""

    BEGUN = "begun"
    MORE = "more"
    DONE = "done"


_KINDS = {Channel.REASONING: ItemKind.REASONING, Channel.CONTENT: ItemKind.MESSAGE, Channel.NO_CALL: ItemKind.MESSAGE}
_PREFIXES = {ItemKind.REASONING: "rs_", ItemKind.MESSAGE: "msg_", ItemKind.CALL: "fc_", ItemKind.CUSTOM_CALL: "ctc_"}
_NO_TOOL = CalledTool("")
_encode = msgspec.json.Encoder().encode


@dataclass
class OutputItem:
    """One item. `index`: among those that have begun. `number`: of a call among the calls.

    `text`: of a call, the arguments that the model has written.
    """

    kind: ItemKind
    index: int
    number: int = 0
    tool: CalledTool = _NO_TOOL  # of a call
    text: str = ""
    logprobs: list[msgspec.Raw] = field(default_factory=list)
    is_whole: bool = False
    is_no_call: bool = False  # the text looked like a call and was none


class Step(NamedTuple):
    """One change of one item. `text`, `logprobs`: what is added to it."""

    change: ItemChange
    item: OutputItem
    text: str = ""
    logprobs: Sequence[msgspec.Raw] = ()


class OutputWalk:
    """The items of one answer, which begin and end with the runs of its channels. Its tokens are read in order."""

    def __init__(self, sequence: GrowingSequence, model: TextModel, *, with_logprobs: bool = True) -> None:
        """`sequence`: of a request with a `splitting`. `with_logprobs`: the items have log probabilities if it has any."""
        self._sequence, self._model, self._split = sequence, model, SplitText(sequence)
        self._shows_logprobs = with_logprobs and sequence.wants_logprobs
        self._tools = _called_in(sequence)
        self._n_told = self._n_calls = 0  # tokens before which nothing is held back; calls that have begun
        self._open: OutputItem | None = None
        self.items: list[OutputItem] = []

    def of_token(self, number: int) -> list[Step]:
        """What became certain with a token. Tokens before it that were not read are passed."""
        self._pass(number)
        return self._steps(self._split.of_token(number), number + 1)

    def of_ending(self) -> list[Step]:
        """What became certain with the ending. The last item stays open."""
        self._pass(len(self._sequence.texts))
        return self._steps(self._split.of_ending(), len(self._sequence.ids))

    def close(self) -> list[Step]:
        """The end of the last item, after the ending. An answer without any item gets an empty message."""
        ended = self._sequence.ended
        begun = [] if self.items else self._begin(ItemKind.MESSAGE)
        return begun + self._end(is_whole=ended is not None and ended.reason == "stop")

    @property
    def output(self) -> list[dict[str, Any]]:
        """The items so far as clients read them. What looked like a call and was none is a message."""
        return [item_json(self._sequence, item) for item in self.items if not item.is_no_call]

    def whole_output(self) -> list[dict[str, Any]]:
        """As `output`, for an answer that is over, whose tokens may not have been read."""
        self.of_ending()
        if self._sequence.ended is not None and not self._sequence.ended.is_failure:
            self.close()
        return self.output

    def _pass(self, number: int) -> None:
        if not self._shows_logprobs and self._split.n_read < number:
            self._steps(self._split.pass_to(number), number)
        for known in range(self._split.n_read, number):  # each token has its log probabilities
            self._steps(self._split.of_token(known), known + 1)

    def _steps(self, pieces: list[TextPiece], n_tokens: int) -> list[Step]:
        """`n_tokens`: how many have been read with these pieces."""
        steps: list[Step] = []
        for channel, text in pieces:
            if channel is Channel.CALL:
                steps += self._end() + self._begin_call(text)
            else:
                if channel is Channel.NO_CALL and self._open is not None:
                    self._open.is_no_call = True
                kind = self._kind_of(channel)
                is_new = self._open is None or self._open.kind is not kind
                # tokens whose text was held back before a new item are its marks: only the last token belongs to the item
                first = max(self._n_told, n_tokens - 1) if is_new and self.items else self._n_told
                if is_new:
                    steps += self._end() + self._begin(kind)
                steps += self._more(text, first, n_tokens)
            self._n_told = n_tokens
        return steps

    def _kind_of(self, channel: Channel) -> ItemKind:
        """The kind of the item that text of a channel belongs to. Arguments belong to the call that is open."""
        if channel in _KINDS:
            return _KINDS[channel]
        return self._open.kind if self._open is not None and self._open.kind.is_call else ItemKind.CALL

    def _begin(self, kind: ItemKind) -> list[Step]:
        self._open = OutputItem(kind, len(self.items))
        self.items.append(self._open)
        return [Step(ItemChange.BEGUN, self._open)]

    def _begin_call(self, name: str) -> list[Step]:
        tool = self._tools.get(name) or CalledTool(name)
        begun = self._begin(ItemKind.CUSTOM_CALL if tool.is_custom else ItemKind.CALL)
        begun[0].item.tool, begun[0].item.number = tool, self._n_calls
        self._n_calls += 1
        return begun

    def _more(self, text: str, first: int, stop: int) -> list[Step]:
        """`text` comes from tokens `first` .. `stop` - 1."""
        item = self._open
        assert item is not None, "it has begun"
        shows_them = self._shows_logprobs and item.kind is ItemKind.MESSAGE
        found = logprobs_of(self._sequence, first, stop, self._model) if shows_them else ()
        item.text += text
        item.logprobs += found
        return [Step(ItemChange.MORE, item, text, found)]

    def _end(self, *, is_whole: bool = True) -> list[Step]:
        """The end of the open item, if there is one. A call is whole if its arguments are."""
        item, self._open = self._open, None
        if item is None:
            return []
        if item.kind.is_call:
            item.is_whole = not item.is_no_call and ToolCall(item.number, item.tool.name, item.text).input is not None
        else:
            item.is_whole = is_whole
        return [Step(ItemChange.DONE, item)]


def _called_in(sequence: GrowingSequence) -> dict[str, CalledTool]:
    """The tools of the request that are no plain functions, by the name that the model was told."""
    spec = sequence.spec
    assert spec.response is not None, "it is a request of /v1/responses"
    if spec.splitting is None or spec.splitting.tools is None:
        return {}
    return called_tools(msgspec.json.decode(spec.response.shown)["tools"])


def item_json(sequence: GrowingSequence, item: OutputItem, *, is_begun: bool = False) -> dict[str, Any]:
    """An item as clients read it. `is_begun`: as it is when it begins, without content."""
    status = "in_progress" if is_begun else "completed" if item.is_whole else "incomplete"
    head = {"id": output_id(sequence, item), "type": item.kind.value, "status": status}
    if item.kind.is_call:
        text, tool = "" if is_begun else called_with(item), item.tool
        namespace = {"namespace": tool.namespace} if tool.namespace else {}
        given = {"input" if tool.is_custom else "arguments": text, "call_id": call_id(sequence, item.number)}
        return {**head, **given, "name": tool.name, **namespace}
    content = [] if is_begun else [part_json(item)]
    if item.kind is ItemKind.REASONING:
        return {**head, "summary": [], "content": content}
    return {**head, "role": "assistant", "content": content}


def called_with(item: OutputItem) -> str:
    """What a call gives to its tool: the arguments, or the text for a custom tool; "" for a text that was cut off."""
    return (custom_input(item.text) or "") if item.tool.is_custom else item.text


def part_json(item: OutputItem, *, is_begun: bool = False) -> dict[str, Any]:
    """The one part of a message, or of the reasoning."""
    text = "" if is_begun else item.text
    if item.kind is ItemKind.REASONING:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "annotations": [], "logprobs": [] if is_begun else item.logprobs, "text": text}


def output_id(sequence: GrowingSequence, item: OutputItem) -> str:
    """The id of an item: a function of the request's id, so that another process gives the same one."""
    return f"{_PREFIXES[item.kind]}{sequence.spec.request.removeprefix('resp_')}_{item.index}"


def logprobs_of(sequence: GrowingSequence, first: int, stop: int, model: TextModel) -> list[msgspec.Raw]:
    """The log-probabilities of tokens first .. stop - 1 as JSON, which several events repeat; [] if they were not asked for."""
    if not sequence.wants_logprobs or first >= stop:
        return []
    content = logprobs_json(sequence, first, stop, model, is_chat=True, offset=0)["content"]
    return [msgspec.Raw(_encode(one)) for one in content]
