"""Endpoints that are the operator's: the right of each call is checked, and it has a line in the audit log."""

from __future__ import annotations

from dataclasses import replace

from starlette.types import ASGIApp

from actors.gateway.access.audited import MOST_CHARACTERS, Audit, shown_parameters, shown_with
from actors.gateway.access.http_keys import key_in
from actors.gateway.cache_reset.operator_right import KEY_HEADER, check_operator
from actors.gateway.http.endpoint import Call, Endpoint, Services
from messages.access.audit_log import AuditRecord, Door


def for_admins(endpoint: Endpoint, services: Services, audit: Audit) -> Endpoint:
    """The endpoint as it is if it needs no admin, else with its check and its line."""
    if not endpoint.needs_admin:
        return endpoint

    async def handler(services: Services, call: Call) -> ASGIApp:
        headers = dict(call.scope["headers"])

        async def work() -> ASGIApp:
            if not call.origin.is_admin:
                check_operator(services.settings.operator_key, headers.get(KEY_HEADER, b"").decode("latin-1"))
            return await endpoint.handler(services, call)

        return await audit.around(_record(endpoint, services, audit, call), work)

    return replace(endpoint, handler=handler)


def _record(endpoint: Endpoint, services: Services, audit: Audit, call: Call) -> AuditRecord:
    holder = None if services.keys is None else services.keys.known(key_in(dict(call.scope["headers"])))
    client = call.scope.get("client")
    named = {name: value[:MOST_CHARACTERS] for name, value in call.parameters.items()}  # of the path: whose policy it is
    parameters = named | shown_parameters(call.body, shown_with(services.settings))
    return audit.record(Door.HTTP, f"{endpoint.method} {endpoint.path}", client[0] if client else "", holder, parameters)
