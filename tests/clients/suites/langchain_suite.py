"""langchain-tests' whole suite of chat models, with langchain-openai against a running server.

A small model does not decide to call a tool and does not end a text in JSON, so the model under test makes every call a
forced one, one at a time, and likes the quotation mark that ends a text.
"""

from __future__ import annotations

import os
from typing import Any

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

URL, MODEL = os.environ["CLIENT_URL"], os.environ["CLIENT_MODEL"]


def token_of(text: str) -> str:
    (token,) = httpx.post(URL + "/tokenize", json={"prompt": text}).json()["tokens"]
    return str(token)


LIKES_TO_END = {token_of('"'): 12.0, token_of('"}'): 16.0}


class ForcedCalls(ChatOpenAI):
    """A model that calls one of its tools, if it has any."""

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **options: Any) -> Any:
        return super().bind_tools(tools, tool_choice=tool_choice or "any", **options)

    def with_structured_output(self, schema: Any = None, **options: Any) -> Any:
        brief = self.model_copy(update={"extra_body": {**self.extra_body, "logit_bias": LIKES_TO_END}})
        return ChatOpenAI.with_structured_output(brief, schema, **options)


class TestChatModel(ChatModelIntegrationTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ForcedCalls

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": MODEL, "base_url": URL + "/v1", "api_key": "none", "temperature": 0, "max_completion_tokens": 128,
            "stream_usage": True, "extra_body": {"parallel_tool_calls": False},
        }  # fmt: skip

    @property
    def structured_output_kwargs(self) -> dict[str, Any]:
        return {"method": "json_schema"}

    @property
    def has_tool_choice(self) -> bool:
        return True
