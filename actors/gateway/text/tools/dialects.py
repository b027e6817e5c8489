"""How a model writes calls of tools: which dialect it is, by the model's chat template, and what splits its answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from actors.gateway.text.pieces import Splitter
from actors.gateway.text.tools.call_splitter import FewCalls, ForcedCalls
from actors.gateway.text.tools.json_calls import Hermes, LlamaJson, Mistral
from actors.gateway.text.tools.python_calls import Pythonic
from actors.gateway.text.tools.xml_calls import QwenXml


class Dialect(StrEnum):
    """How calls are written."""

    HERMES = "hermes"
    LLAMA_JSON = "llama_json"
    MISTRAL = "mistral"
    PYTHONIC = "pythonic"
    QWEN_XML = "qwen_xml"

    @property
    def has_special_marks(self) -> bool:
        """True if its marks may be special tokens, which have no text unless they are asked for."""
        return self in (Dialect.LLAMA_JSON, Dialect.MISTRAL, Dialect.PYTHONIC)


# Texts in the chat templates of models that write a dialect. The first dialect whose texts are all there counts; else Hermes.
_SIGNS: tuple[tuple[Dialect, Sequence[str]], ...] = (
    (Dialect.QWEN_XML, ("<function=", "<parameter=")),
    (Dialect.MISTRAL, ("[TOOL_CALLS]",)),
    (Dialect.HERMES, ("<tool_call>",)),
    (Dialect.PYTHONIC, ("func_name1(",)),
    (Dialect.LLAMA_JSON, ("<|python_tag|>",)),
    (Dialect.LLAMA_JSON, ('"parameters": dictionary',)),
)


def dialect_of(template: str) -> Dialect:
    """The dialect of a model with this chat template (Jinja source)."""
    return next((dialect for dialect, signs in _SIGNS if all(sign in template for sign in signs)), Dialect.HERMES)


def forced_dialect(dialect: Dialect) -> Dialect:
    """The dialect in which a grammar forces calls: one whose calls are JSON."""
    match dialect:
        case Dialect.PYTHONIC:
            return Dialect.MISTRAL  # a list too
        case Dialect.QWEN_XML:
            return Dialect.HERMES  # within the same marks
        case _:
            return dialect


class ToolRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """How calls in the answers to one request are found and shown. The journal records it with the request."""

    dialect: Dialect
    names: list[str]  # of the tools that may be called
    texts: list[str] = []  # their parameters that are texts, as "tool.parameter"; for dialects that do not mark texts
    most_calls: int = 0  # in one answer, 0: any number; later ones are left out
    is_function: bool = False  # the client has used the older fields `functions` and `function_call`
    is_forced: bool = False  # a grammar makes the answer calls and nothing else
    # streams of chats begin with content null, and not ""; false for requests that an earlier release has recorded, whose
    # clients have such a beginning already
    begins_with_null: bool = False

    def splitter(self) -> Splitter:
        """A splitter for one text."""
        found = ForcedCalls(self._splitter(), self.names) if self.is_forced else self._splitter()
        return FewCalls(found, self.most_calls) if self.most_calls else found

    def _splitter(self) -> Splitter:
        match self.dialect:
            case Dialect.HERMES:
                return Hermes(self.names)
            case Dialect.LLAMA_JSON:
                return LlamaJson(self.names)
            case Dialect.MISTRAL:
                return Mistral(self.names)
            case Dialect.PYTHONIC:
                return Pythonic(self.names)
            case Dialect.QWEN_XML:
                return QwenXml(self.names, self.texts)
