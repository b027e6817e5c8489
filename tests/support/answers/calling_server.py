"""A gateway whose model thinks, and calls the tool `get_weather` until it has a result."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from actors.gateway.text.models.folder_text import FolderText
from tests.support.gateway.gateway_rig import Rig
from tests.support.gateway.thinking.thinking_server import thinking_server

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def calling_server(folder: Path, text: FolderText, **options: Any) -> AbstractAsyncContextManager[Rig]:
    """`folder`: of SmolLM2, whose text model is `text`. `options`: as `thinking_server` takes them."""
    return thinking_server(folder, text, lambda prompt: "It is sunny." if "sunny" in prompt else CALL, **options)
