"""The text of a model whose folder has a tokenizer.json: its tokenizer, its chat template, its end tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from actors.gateway.text.chat_template import ChatTemplate, TemplateError
from actors.gateway.text.detokenizer import (
    ByteText,
    Detokenizer,
    StreamText,
    byte_table,
    special_ids,
    whole_texts,
    with_special,
)
from actors.gateway.text.models.model_files import eos_tokens, read_json, template_source, token_text
from actors.gateway.text.models.text_model import MOST_TOKENS, TextModel, TextTooLong
from actors.gateway.text.reasoning_formats import AUTO, marks_of
from actors.gateway.text.special_text import SpecialText
from actors.gateway.text.template_options import PLAIN, TemplateOptions
from actors.gateway.text.tools.dialects import Dialect, dialect_of
from actors.gateway.text.tools.telling import concerns_tools, told, with_short_ids

_LONG_CHARACTERS = 4096
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class FolderText(TextModel):
    """The text of a model folder with a tokenizer.json.

    Raises: TemplateError when its chat template cannot be compiled, ConfigError when a file is not JSON.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        settings = read_json(folder / "tokenizer_config.json")
        self.tokenizer = tokenizer
        self._table = byte_table(tokenizer)
        self._texts = whole_texts(self._table or ())
        self.missing_bytes = frozenset() if self._table is None else frozenset(range(0x100)) - {*b"".join(self._table)}
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
        """A copy with another chat template ("": the same one) and with the reasoning format of that name. Raises:
        TemplateError, ConfigError."""
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
            raise TemplateError(
                "this model has no chat template: send a plain prompt, or set gateway.chat_template at the server"
            )

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
        if len(encoding) > MOST_TOKENS:
            raise TextTooLong(f"expected text of at most {MOST_TOKENS} tokens, got {len(encoding)}")
        return encoding.ids

    def detokenizer(self, prompt: np.ndarray, *, skips_special: bool = True) -> Detokenizer:
        if self._table is not None:
            return ByteText(self._table, self._texts) if skips_special else ByteText(*self._tables_with_special)
        return StreamText(self.tokenizer, prompt[-8:].tolist(), skips_special=skips_special, special=self._special_ids)

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return special_ids(self.tokenizer)

    @cached_property
    def _tables_with_special(self) -> tuple[list[bytes], list[str | None]]:
        assert self._table is not None
        table = with_special(self._table, self.tokenizer)
        return table, whole_texts(table)

    def text_of(self, token: int) -> tuple[str, bytes]:
        if self._table is not None and token < len(self._table) and self._table[token]:
            raw = self._table[token]
            return raw.decode("utf-8", "replace"), raw
        text = self.tokenizer.decode([token], skip_special_tokens=False)
        return text, text.encode("utf-8")


def _longest_token_bytes(tokenizer: Tokenizer, table: Sequence[bytes] | None) -> int:
    """The most bytes of a prompt that one token can stand for; 0 if there is no bound, because the tokenizer may drop text."""
    added = tokenizer.get_added_tokens_decoder().values()
    if table is None or tokenizer.normalizer is not None or any(token.lstrip or token.rstrip for token in added):
        return 0
    return max([1, *map(len, table), *(len(token.content.encode()) for token in added)])
