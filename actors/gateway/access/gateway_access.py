"""Who may use this gateway, and how much: the API keys, the tenants that they belong to, and the limits of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry

from actors.gateway.access.key_ring import KeyRing
from actors.gateway.dispatch.post import Post
from actors.gateway.journal.records import decode_spec, n_tokens_in
from actors.gateway.journal.retained import Retained
from actors.gateway.lifecycle.request_manager import RequestManager
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.settings import GatewaySettings
from actors.gateway.tenants.tenant_limits import TenantLimits
from actors.gateway.tenants.tenant_usage import TenantUsage
from actors.gateway.tls.expiry import CertificateExpiry
from messages.access.allowances import AllowanceTaken, UsageNoted
from messages.access.tenant_file import TenantBook

_HEARD_S = 30.0  # the accounts have heard of what ended longer ago, unless they were dead for so long


class GatewayAccess:
    """Both are None where no API keys are asked for."""

    def __init__(self, settings: GatewaySettings, post: Post, registry: CollectorRegistry) -> None:
        self._post = post
        if settings.tls_cert:
            registry.register(CertificateExpiry(Path(settings.tls_cert)))
        self.keys: KeyRing | None = None
        self.limits: TenantLimits | None = None
        if settings.keys_file:
            self.keys = KeyRing(Path(settings.keys_file), post.wall_s)
            book = TenantBook(settings.tenants, Path(settings.tenants_file or settings.keys_file + ".tenants"))
            self.limits = TenantLimits(book, self.tenant_of, post, settings.gateways, TenantUsage(registry))

    def tenant_of(self, caller: bytes) -> str:
        """The tenant with this digest; "" without keys, and for one whose keys are not in the file any more."""
        return "" if self.keys is None else self.keys.tenant_of(caller)

    def answered(self, message: AllowanceTaken) -> None:
        """The accounts have answered a question."""
        if self.limits is not None:
            self.limits.link.answered(message)

    def noted(self, message: UsageNoted) -> None:
        """The accounts have written down what they were told."""
        if self.limits is not None:
            self.limits.link.noted(message)

    def begin(self, manager: RequestManager) -> GatewayAccess:
        """The journal is replayed: count what its requests use from now on. Returns itself."""
        manager.access_log.tenant_of = manager.refusals.tenant_of = self.tenant_of
        if self.limits is not None:
            ended = manager.finished.retained.ended_since(self._post.now_s() - _HEARD_S)
            self.limits.resumed(manager.unfinished.all, _decoded(ended))
            was_over, limits_over = manager.on_over, self.limits.over
            manager.on_over = lambda request: (was_over(request), limits_over(request))[0]
        return self

    def peer_up(self, name: str) -> None:
        """Another process is ready."""
        if self.limits is not None:
            self.limits.link.peer_up(name)

    def peer_down(self, name: str) -> None:
        """Another process is dead."""
        if self.limits is not None:
            self.limits.link.peer_down(name)

    def refresh(self) -> None:
        """Read the files of keys and tenants again if they have changed."""
        if self.keys is not None:
            self.keys.refresh()
        if self.limits is not None:
            self.limits.book.refresh()

    def statistics(self) -> dict[str, float]:
        """What each tenant has used here, for the status."""
        return {} if self.limits is None else self.limits.usage.statistics()

    def close(self) -> None:
        """The gateway ends."""
        if self.keys is not None:
            self.keys.close()


def _decoded(ended: Iterable[Retained]) -> Iterator[tuple[RequestSpec, int]]:
    """What was asked for, and the tokens that were computed for it; without those whose record is damaged."""
    for one in ended:
        with suppress(ValueError):
            spec = decode_spec(one.record.spec)
            is_all_shown = spec.best_of is None and spec.has_answer
            yield spec, one.finish.n_tokens if is_all_shown else n_tokens_in(one.finish.states)
