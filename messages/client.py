"""The client library's door: `Client` for plain programs, `AsyncClient` for those with a loop. Imports no torch.

Both speak the ZeroMQ protocol of `messages.public`, give every call a deadline, reconnect by themselves, and continue a
cut stream by its request id without a lost or repeated token. Errors are those of `messages.faults`.
"""

from messages.client_async import AsyncClient, TokenStream
from messages.client_stream import Answer, Piece
from messages.client_sync import Client, SyncStream
from messages.faults import ClientError, DeadlineExceeded, InvalidRequest, Overloaded, RequestFailed, Unavailable
from messages.generation import Sampling

__all__ = [
    "Answer",
    "AsyncClient",
    "Client",
    "ClientError",
    "DeadlineExceeded",
    "InvalidRequest",
    "Overloaded",
    "Piece",
    "RequestFailed",
    "Sampling",
    "SyncStream",
    "TokenStream",
    "Unavailable",
]
