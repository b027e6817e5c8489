"""Text to token ids and back for the served model: its tokenizer, its chat template and its end tokens.

`TextModel` has three implementations: a model folder with tokenizer.json, one without (ids only), and the hash-chain model.
Encoding blocks; the caller runs it in a thread for long texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tokenizers import Tokenizer

from actors.gateway.settings import HASH_CHAIN, HASH_CHAIN_VOCABULARY
from actors.gateway.text.chat_template import ChatTemplate, TemplateError
from actors.gateway.text.detokenizer import ByteText, Detokenizer, NoText, NumberText, StreamText, byte_table, with_special
from actors.gateway.text.model_files import eos_tokens, id_list, read_json, template_source, token_text
from actors.gateway.text.reasoning_formats import AUTO, marks_of
from actors.gateway.text.reasoning_text import ReasoningMarks
from actors.gateway.text.special_text import SpecialText
from actors.gateway.text.template_options import PLAIN, TemplateOptions
from actors.gateway.text.tools.dialects import Dialect, dialect_of
from actors.gateway.text.tools.telling import concerns_tools, told, with_short_ids
from messages.errors import ConfigError
from messages.generation.terms import Terms

_LONG_CHARACTERS = 4096
_MOST_TOKENS = 1 << 20  # making a list of the ids of longer texts would hold the interpreter's lock for more than 20 ms
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class NoTokenizer(ValueError):
    """The model has no tokenizer: clients can only send token ids."""


class TextTooLong(ValueError):
    """The text has more tokens than any context can hold."""


class TextModel(Protocol):
    """What the gateway knows about the model's text."""

    vocabulary: int  # number of token ids; the largest is one less
    eos_tokens: list[int]  # ids that end an answer, ascending
    chat_template: str  # the Jinja source; "": conversations cannot be encoded
    takes_grammars: bool = False  # answers can be made to match a grammar
    dialect: Dialect = Dialect.HERMES  # how it writes calls of tools
    reasoning: ReasoningMarks | None = None  # around its reasoning; None: it has none

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a plain prompt, with the special tokens that prompts of this model begin with. Raises: NoTokenizer,
        TextTooLong."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included. Raises: NoTokenizer."""
        ...

    def fewest_tokens(self, text: str) -> int:
        """A lower bound on the number of ids of a plain prompt, without encoding it; 0 if there is none."""
        ...

    def encode_chat(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = PLAIN,
    ) -> list[int]:
        """Token ids of a conversation ({"role", "content"}; perhaps "tool_calls"), with tools (as OpenAI has them) that the
        model may call. Raises: NoTokenizer, TemplateError, TextTooLong."""
        ...

    def takes_long(self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> bool:
        """True if this conversation should be encoded in a thread even if it is short."""
        ...

    def detokenizer(self, prompt: np.ndarray, *, skips_special: bool = True) -> Detokenizer:
        """A detokenizer for one output that follows `prompt` (int32 [n]). skips_special: special tokens have no text."""
        ...

    def text_of(self, token: int) -> tuple[str, bytes]:
        """One token as text (U+FFFD for a part of a character) and as bytes, for display beside its log-probability."""
        ...


class FolderText(TextModel):
    """A model folder with a tokenizer.json.

    Raises: TemplateError when its chat template cannot be compiled, ConfigError when a file is not JSON.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        settings = read_json(folder / "tokenizer_config.json")
        self.tokenizer = tokenizer
        self._table = byte_table(tokenizer)
        self._longest_bytes = _longest_token_bytes(tokenizer, self._table)
        config = read_json(folder / "config.json")
        self.vocabulary = int(config.get("vocab_size") or tokenizer.get_vocab_size(with_added_tokens=True))
        names = {name: token_text(settings.get(name)) for name in _SPECIAL_NAMES}
        self._special = {name: text for name, text in names.items() if text}
        self.eos_tokens = eos_tokens(folder, config, tokenizer, self._special.get("eos_token", ""))
        self.takes_grammars = bool(self.eos_tokens)
        self._use_template(template_source(folder, settings))
        self.reasoning = marks_of(AUTO, self.chat_template)

    def changed(self, chat_template: str, reasoning: str) -> FolderText:
        """The same with another chat template, if this is not "", and the reasoning format of that name. Raises: TemplateError,
        ConfigError."""
        model = copy(self)
        if chat_template:
            model._use_template(chat_template)
        model.reasoning = marks_of(reasoning, model.chat_template)
        return model

    def _use_template(self, source: str) -> None:
        self.chat_template, self.dialect = source, dialect_of(source)
        self.template = ChatTemplate(source, self._special) if source else None
        self._special_text = SpecialText(self.tokenizer, self.template.literals if self.template is not None else ())

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return self._ids(text, add_special_tokens=add_special_tokens)

    def decode(self, ids: Sequence[int]) -> str:
        if len(ids) <= _LONG_CHARACTERS:
            return self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return self.tokenizer.decode_batch([list(ids)], skip_special_tokens=False)[0]  # releases the interpreter's lock

    def fewest_tokens(self, text: str) -> int:
        return len(text) // self._longest_bytes if self._longest_bytes else 0

    def encode_chat(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = PLAIN,
    ) -> list[int]:
        template = self.template
        if template is None:
            raise TemplateError("this model has no chat template: send a plain prompt")

        def render(conversation: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]) -> str:
            turns, tools = conversation
            if self.dialect is Dialect.MISTRAL:
                turns = with_short_ids(turns)
            if template.knows_tools or not (tools or concerns_tools(turns)):
                return template.render(turns, tools, options)
            return template.render(told(turns, tools), options=options)

        prompt = render((turns, tools))  # the template writes the special tokens, so none are added
        ids = self._special_text.encode((turns, tools), prompt, render)
        return self._ids(prompt, add_special_tokens=False) if ids is None else ids

    def takes_long(self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> bool:
        return bool(tools) or self._special_text.may_occur(turns)  # it may have to build a second tokenizer

    def _ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        if len(text) <= _LONG_CHARACTERS:
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        # only the batch call releases the interpreter lock; a megabyte takes more than a second
        encoding = self.tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
        if len(encoding) > _MOST_TOKENS:
            raise TextTooLong(f"expected text of at most {_MOST_TOKENS} tokens, got {len(encoding)}")
        return encoding.ids

    def detokenizer(self, prompt: np.ndarray, *, skips_special: bool = True) -> Detokenizer:
        if self._table is not None:
            return ByteText(self._table if skips_special else self._table_with_special)
        return StreamText(self.tokenizer, prompt[-8:].tolist(), skips_special=skips_special)

    @cached_property
    def _table_with_special(self) -> list[bytes]:
        assert self._table is not None
        return with_special(self._table, self.tokenizer)

    def text_of(self, token: int) -> tuple[str, bytes]:
        if self._table is not None and token < len(self._table) and self._table[token]:
            raw = self._table[token]
            return raw.decode("utf-8", "replace"), raw
        text = self.tokenizer.decode([token], skip_special_tokens=False)
        return text, text.encode("utf-8")


class IdsOnly(TextModel):
    """A model folder without a tokenizer, such as one with random weights. What needs one raises NoTokenizer."""

    def __init__(self, vocabulary: int, eos_tokens: list[int]) -> None:
        self.vocabulary, self.eos_tokens, self.chat_template = vocabulary, eos_tokens, ""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        raise NoTokenizer("this model has no tokenizer: send token ids")

    def decode(self, ids: Sequence[int]) -> str:
        raise NoTokenizer("this model has no tokenizer: its token ids have no text")

    def fewest_tokens(self, text: str) -> int:
        return 0

    def encode_chat(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = PLAIN,
    ) -> list[int]:
        raise NoTokenizer("this model has no tokenizer: send token ids to /v1/generate")

    def takes_long(self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> bool:
        return False

    def detokenizer(self, prompt: np.ndarray, *, skips_special: bool = True) -> Detokenizer:
        return NoText()

    def text_of(self, token: int) -> tuple[str, bytes]:
        return "", b""


class HashChainText(TextModel):
    """The hash-chain model: the ids of a prompt are its UTF-8 bytes; the text of an output id is its decimal number."""

    vocabulary = HASH_CHAIN_VOCABULARY
    eos_tokens: list[int] = []
    chat_template = "{% for turn in messages %}{{ turn.role }}: {{ turn.content }}\n{% endfor %}assistant: "

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        if len(text) > _MOST_TOKENS:
            raise TextTooLong(f"expected text of at most {_MOST_TOKENS} tokens, got {len(text)}")
        return list(text.encode("utf-8"))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.text_of(token)[0] for token in ids)

    def fewest_tokens(self, text: str) -> int:
        return len(text)

    def encode_chat(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: TemplateOptions = PLAIN,
    ) -> list[int]:
        text = "".join(f"{turn['role']}: {turn['content']}\n" for turn in told(turns, tools))
        if options.continues_last:
            return self.encode(text[:-1])
        return self.encode(text + "assistant: " * options.has_answer_head)

    def takes_long(self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> bool:
        return False

    def detokenizer(self, prompt: np.ndarray, *, skips_special: bool = True) -> Detokenizer:
        return NumberText()

    def text_of(self, token: int) -> tuple[str, bytes]:
        text = f"{token} "
        return text, text.encode()


def detokenizers(model: TextModel, terms: Terms) -> Callable[[np.ndarray], Detokenizer]:
    """What makes the detokenizer of an answer from its prompt, for requests with these terms."""
    return partial(model.detokenizer, skips_special=terms.skip_special_tokens)


@lru_cache(maxsize=1)
def load_text_model(model_folder: str) -> TextModel:
    """The text model of a folder, or of "hash-chain". Blocks for up to a second.

    The result is cached, so that a spare process can call this before it becomes a gateway.

    Raises: ConfigError when the folder has no config.json or one of its files cannot be read.
    """
    if model_folder == HASH_CHAIN:
        return HashChainText()
    folder = Path(model_folder)
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model_folder: expected a folder with config.json, got {model_folder!r}")
    if not (folder / "tokenizer.json").is_file():
        config = read_json(folder / "config.json")
        eos_tokens = id_list(read_json(folder / "generation_config.json").get("eos_token_id", config.get("eos_token_id")))
        return IdsOnly(int(config.get("vocab_size") or 1), eos_tokens)
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises plain Exception
        raise ConfigError(f"model_folder: {folder / 'tokenizer.json'} cannot be read: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        return FolderText(folder, tokenizer)
    except TemplateError as error:
        raise ConfigError(f"model_folder: {error}") from None


def _longest_token_bytes(tokenizer: Tokenizer, table: Sequence[bytes] | None) -> int:
    """The most bytes of a prompt that one token can stand for; 0 if there is no bound, because the tokenizer may drop text."""
    added = tokenizer.get_added_tokens_decoder().values()
    if table is None or tokenizer.normalizer is not None or any(token.lstrip or token.rstrip for token in added):
        return 0
    return max([1, *map(len, table), *(len(token.content.encode()) for token in added)])
