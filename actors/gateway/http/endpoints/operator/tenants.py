"""The operator's endpoints for tenants: their weights, priorities and limits, as they count now."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp

from actors.gateway.http.endpoint import Call, Endpoint, Services, json_response
from actors.gateway.requests.refusals import Refusal, invalid
from messages.access.tenant_file import Policies, TenantBook
from messages.access.tenant_policy import TENANT_PATTERN, TenantPolicy
from messages.errors import ConfigError

PATH = "/v1/tenants"
_RULE = "the name of a tenant: 1 to 64 letters, digits, dots, hyphens or underscores"


async def show_all(services: Services, call: Call) -> ASGIApp:
    """GET /v1/tenants: the policies of all tenants that have one of their own. Raises: Refusal."""
    book = _book(services)
    return json_response({"tenants": {name: _shown(policy) for name, policy in sorted(book.policies.items())}})


async def show(services: Services, call: Call) -> ASGIApp:
    """GET /v1/tenants/{name}: the policy of a tenant, its own or that of all tenants without one. Raises: Refusal."""
    book, name = _book(services), _name(call)
    return json_response({"tenant": name, "is_own": name in book.policies, "policy": _shown(book.policy_of(name))})


async def put(services: Services, call: Call) -> ASGIApp:
    """PUT /v1/tenants/{name}: set the whole policy of a tenant; a key that is left out gets its default. All gateways go by it
    within a second, and so does the server after a restart. An unknown key is refused. Raises: Refusal."""
    book, name = _book(services), _name(call)
    policy = await services.body_reader.read(call.body or bytearray(b"{}"), TenantPolicy)
    await _change(book, lambda found: {**found, name: policy})
    return json_response({"tenant": name, "is_own": True, "policy": _shown(policy)})


async def remove(services: Services, call: Call) -> ASGIApp:
    """DELETE /v1/tenants/{name}: forget the policy that was set while the server ran. That of the configuration counts again.
    Raises: Refusal."""
    book, name = _book(services), _name(call)
    await _change(book, lambda found: {other: policy for other, policy in found.items() if other != name})
    return json_response({"tenant": name, "is_own": name in book.policies, "policy": _shown(book.policy_of(name))})


def _book(services: Services) -> TenantBook:
    if (limits := services.admission.limits) is None:
        raise Refusal("not_found", "this server has no tenants: it was started without --api-keys")
    return limits.book


def _name(call: Call) -> str:
    name = call.parameters["name"]
    if not re.fullmatch(TENANT_PATTERN, name):
        raise invalid("name", _RULE, name)
    return name


async def _change(book: TenantBook, change: Callable[[Policies], Policies]) -> None:
    """Change the file, in a thread: another process may hold it."""
    try:
        await asyncio.get_running_loop().run_in_executor(None, book.change, change)
    except (ConfigError, OSError) as error:
        raise Refusal("unavailable", f"the file of tenants cannot be changed: {error}", retry_after_s=5.0) from None


def _shown(policy: TenantPolicy) -> dict[str, Any]:
    """All keys of a policy, also those with their defaults."""
    return {name: getattr(policy, name) for name in TenantPolicy.__struct_fields__}


_STATUSES = (403, 404)  # 404: a server without tenants

ENDPOINTS = (
    Endpoint("GET", PATH, show_all, needs_admin=True, statuses=_STATUSES),
    Endpoint("GET", PATH + "/{name}", show, needs_admin=True, statuses=_STATUSES),
    Endpoint("PUT", PATH + "/{name}", put, needs_admin=True, body=TenantPolicy, statuses=_STATUSES),
    Endpoint("DELETE", PATH + "/{name}", remove, needs_admin=True, statuses=_STATUSES),
)
