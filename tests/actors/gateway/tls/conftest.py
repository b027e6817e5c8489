"""These tests run on the loop of a real gateway, whose TLS is not that of asyncio."""

from collections.abc import Callable, Mapping
from typing import Any

import uvloop


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], Any]]:
    """The only one is uvloop's."""
    return {"uvloop": uvloop.new_event_loop}
