"""What an endpoint of the HTTP API is: a method, a path, and a function of the gateway's services and one call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from actors.gateway.access.key_ring import KeyRing
from actors.gateway.admission.admission import Admission
from actors.gateway.bodies.fields.unknown_fields import IGNORED_HEADER, IgnoredFieldsLog, header_of
from actors.gateway.bodies.large_bodies import BodyReader
from actors.gateway.bodies.request_name import Origin
from actors.gateway.bodies.schema import OWN_FIELDS
from actors.gateway.cache_reset.cache_reset import CacheReset
from actors.gateway.embeddings.embeddings import Embeddings
from actors.gateway.http.gateways.forwarded_call import call_of
from actors.gateway.http.gateways.forwarding import Forwarded
from actors.gateway.http.request_identity import Identity
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.models.served_models import ServedModel, ServedModels
from actors.gateway.operator_commands import OperatorCommands
from actors.gateway.other_gateways.owners import Owners
from actors.gateway.other_gateways.questions import who_knows
from actors.gateway.page.live_page import LivePage
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request
from actors.gateway.settings import GatewaySettings
from actors.gateway.text.models.text_model import TextModel

_IGNORED = ("api-version",)  # clients for Azure send it with every request
_MOST_NAME = 80  # characters of a name in an error


class Status(Protocol):
    """Health and metrics of the server, which the gateway's actor provides to the endpoints."""

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests can be served now, and the JSON of /v1/health."""
        ...

    async def summary(self) -> dict[str, Any]:
        """The JSON of /v1/metrics."""
        ...

    async def exposition(self) -> bytes:
        """The Prometheus text of the whole server."""
        ...


@dataclass(frozen=True)
class Services:
    """What endpoints work with. `started_s` is Unix time."""

    settings: GatewaySettings
    models: ServedModels
    admission: Admission
    manager: RequestManager
    status: Status
    body_reader: BodyReader
    owners: Owners
    started_s: int
    caches: CacheReset
    live: LivePage
    commands: OperatorCommands
    embeddings: Embeddings | None = None  # None: the server has no embedding model
    keys: KeyRing | None = None  # None: nobody is asked for an API key
    ignored_fields: IgnoredFieldsLog = field(default_factory=lambda: IgnoredFieldsLog(OWN_FIELDS))

    @property
    def model(self) -> TextModel:
        """The text of the main model."""
        return self.models.main.text

    def model_of(self, request: Request) -> ServedModel:
        """The model that answers this request."""
        return self.models.accepted(request.spec.model, request.identity)


class Call(msgspec.Struct, frozen=True):
    """One HTTP request.

    `identity`: what the headers say about which request this is. `origin`: where it comes from. `body`: empty unless it is a
    POST. `parameters`: those of the path's patterns, and unless it is a POST of the query, by name. `scope`: ASGI's.
    `ignored`: names of unknown fields in the body, once `read` has read it.
    """

    identity: Identity
    origin: Origin
    body: bytearray
    parameters: Mapping[str, str]
    scope: Scope
    ignored: list[str] = msgspec.field(default_factory=list)


B = TypeVar("B", bound=msgspec.Struct)
Handler = Callable[[Services, Call], Awaitable[ASGIApp]]


@dataclass(frozen=True)
class Endpoint:
    """One route. Each file in `endpoints/` has a tuple ENDPOINTS of routes, and `api.py` lists the files.

    `needs_open`: the body is read only if requests are accepted now; otherwise the server answers before it reads.
    `query`: the parameters that it takes in its address; others are refused. None: all are ignored, as probes expect.
    `is_open`: no API key is asked for, because probes have none. `needs_admin`: it is the operator's: an API key of the role
    admin, or the operator's key; each call has a line in the audit log. `shows_metrics`: a key of the role metrics opens it.
    The rest is for the documentation. `body`: the struct that it reads. `generates`: it answers with tokens, streamed if asked.
    `statuses`: those that it may answer with beside the usual ones. `media_type`: of its answer, if that is no JSON.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Handler
    needs_open: bool = False
    query: tuple[str, ...] | None = ()
    is_open: bool = False
    needs_admin: bool = False
    shows_metrics: bool = False
    body: type[msgspec.Struct] | None = None
    generates: bool = False
    statuses: tuple[int, ...] = ()
    media_type: str = "application/json"

    def check_query(self, query_string: bytes) -> None:
        """Check the parameters of a URL. Raises: Refusal naming one that this endpoint does not take."""
        if not query_string or self.query is None:
            return
        for name, _ in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
            if name not in self.query and name not in _IGNORED:
                known = " or ".join(self.query) or "none, because the fields of a request are in its body"
                shown = name[:_MOST_NAME]
                raise Refusal("invalid", f"{shown}: unknown query parameter; expected {known}", field=shown)


async def read(services: Services, call: Call, kind: type[B], ids_field: str = "") -> B:
    """The body of a call as its struct. Unknown fields are ignored and told, unless the settings are strict.

    `ids_field`: see `BodyReader.read`. Raises: Refusal.
    """
    if services.settings.strict_fields:
        return await services.body_reader.read(call.body, kind, ids_field)
    body = await services.body_reader.read(call.body, kind, ids_field, call.ignored)
    if call.ignored:
        services.ignored_fields.note(call.scope["path"], call.ignored)
    return body


async def forwarded(services: Services, call: Call, request_id: str, start: int | None = None) -> ASGIApp | None:
    """The answer of the gateway that has this id; None if it is this one, or the client has given none ("").

    `start`: the id of the event that the client has already, if it is not in a header. Raises: Refusal.
    """
    socket = await gateway_of(services, request_id)
    if not socket:
        return None
    start = call.identity.last_event if start is None else start
    one = call_of(request_id, start, call.scope, call.body, call.origin.caller)
    return Forwarded(socket, one, services.settings.request_timeout_s)


async def gateway_of(services: Services, request_id: str) -> str:
    """The socket of the gateway that has this id, or whose it will be; "" if it is this one.

    An id that another gateway had before the number of gateways changed stays with it. Raises: Refusal.
    """
    owners = services.owners
    if not request_id or (owners.have_changed and services.admission.knows(request_id)):
        return ""
    if (socket := owners.socket_of(request_id)) or not owners.have_changed:
        return socket
    return await who_knows(owners.other_sockets, request_id)


def json_response(value: object, status: int = 200, ignored: Sequence[str] = ()) -> Response:
    """A value as a JSON response. `ignored`: names of unknown fields of the body that asked."""
    return Response(msgspec.json.encode(value), status, ignored_header(ignored), media_type="application/json")


def ignored_header(ignored: Sequence[str]) -> dict[str, str]:
    """The header that tells which unknown fields were ignored; none without such a field."""
    return {IGNORED_HEADER: header_of(ignored)} if ignored else {}
