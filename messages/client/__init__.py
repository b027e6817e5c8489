"""The client library over ZeroMQ: `Client` for ordinary code, `AsyncClient` for asyncio. Imports neither torch nor the server.

    with Client() as client:                       # the server on port 8000 of this machine
        print(client.generate("Hello", max_tokens=16).text)

A stream survives the death of any process of the server, the gateway included: the client sends its request again under the
same id and goes on at the next token. That is why the client chooses the seed.
"""

from messages.client.async_client import AsyncClient
from messages.client.sync_client import Client

__all__ = ["AsyncClient", "Client"]
