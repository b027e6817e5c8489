"""The shortest body for each path that generates text."""

from __future__ import annotations

from typing import Any

USER_TURN: list[Any] = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER_TURN, "max_tokens": 4},
    "/v1/completions": {"prompt": "a", "max_tokens": 4},
    "/v1/responses": {"input": "a", "max_output_tokens": 4},
    "/v1/messages": {"messages": USER_TURN, "max_tokens": 4},
    "/v1/generate": {"prompt": "a", "max_tokens": 4},
    "/v1/batch": {"prompts": ["a"], "max_tokens": 4},
}
