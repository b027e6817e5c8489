"""The limits of tenants, as admission asks for them and as the request manager tells what became of a request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from actors.gateway.dispatch.post import Post
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.tenants.accounts_link import AccountsLink
from actors.gateway.tenants.limit_headers import limit_headers, refused_by
from actors.gateway.tenants.open_allowances import OpenAllowance, OpenAllowances, tokens_of
from actors.gateway.tenants.stand_in import StandIn
from actors.gateway.tenants.tenant_usage import TenantUsage
from messages.access.allowances import AllowanceTaken, WantedAllowance
from messages.access.tenant_file import TenantBook
from messages.access.tenant_policy import NO_POLICY, TenantPolicy
from messages.generation.terms import Terms
from messages.ids import mint_request_id

_TOKEN_BYTES = 4
_UNKNOWN = "what the tenant {} has left of its tokens of today is not known, because the accounts of this server do not answer"
_UNKNOWN_RETRY_S = 5.0


@dataclass(frozen=True)
class TakenTokens:
    """What a call for vectors may use. `tenant`: "": it has none. `allowance`: None: the tenant has no limits. `headers`: tell
    of them."""

    tenant: str
    n_tokens: int
    allowance: OpenAllowance | None = None
    headers: dict[str, str] = field(default_factory=dict)


class TenantLimits:
    """The tenants of one gateway. `tenant_of`: the tenant of a caller; "": it has none, and no limits."""

    def __init__(
        self, book: TenantBook, tenant_of: Callable[[bytes], str], post: Post, n_gateways: int, usage: TenantUsage
    ) -> None:
        self.book, self._tenant_of, self._post, self.usage = book, tenant_of, post, usage
        self._opened, self._stand_in = OpenAllowances(), StandIn(n_gateways)
        self.link = AccountsLink(post, self._opened)
        self._by_request: dict[str, OpenAllowance] = {}  # by the id of a request that is accepted

    def shaped(self, terms: Terms) -> Terms:
        """The terms of a new request with the weight, the priority and the shares of pages of its tenant."""
        policy = self._policy_of(terms.caller)
        priority = policy.priority_for(terms.priority)
        if policy is NO_POLICY and priority == terms.priority:
            return terms
        shares = {"page_share": policy.page_share, "cache_share": policy.cache_share}
        return msgspec.structs.replace(terms, weight=policy.weight, priority=priority, **shares)

    @asynccontextmanager
    async def taken(self, specs: Sequence[RequestSpec]) -> AsyncIterator[list[RequestSpec]]:
        """The time in which requests of one caller, for which its tenant has room, are accepted. They get the headers that
        tell of the limits. What is not accepted by the end is given back. Raises: Refusal."""
        caller = specs[0].terms.caller if specs else b""
        policy = self._policy_of(caller)
        if not policy.is_limited:
            yield list(specs)
            return
        tenant = self._tenant_of(caller)
        opened = self._begin(specs, tenant)
        try:
            answer = await self._take(tenant, policy, opened)
            headers = limit_headers(policy, answer.state)
            for one, spec in zip(opened, specs, strict=True):
                self._by_request[spec.request] = one
            yield [msgspec.structs.replace(spec, limit_headers=headers) for spec in specs]
        finally:
            self._give_back(one for one in opened if one.request is None)
            for spec in specs:
                found = self._by_request.get(spec.request)
                if found is not None and found.request is None:
                    del self._by_request[spec.request]

    def weight_of(self, caller: bytes) -> float:
        """The weight of the tenant of a caller."""
        return self._policy_of(caller).weight

    async def take_tokens(self, caller: bytes, n_tokens: int) -> TakenTokens:
        """Take the tokens of the texts of one call for vectors. Follow with `settle`. Raises: Refusal."""
        policy, tenant = self._policy_of(caller), self._tenant_of(caller)
        if not policy.is_limited:
            return TakenTokens(tenant, n_tokens)
        one = OpenAllowance(mint_request_id(), tenant, 0, n_tokens, n_tokens)
        self._opened.begin(one)
        try:
            headers = limit_headers(policy, (await self._take(tenant, policy, [one])).state)
        except BaseException:
            self._give_back([one])
            raise
        self.link.note_open()
        return TakenTokens(tenant, n_tokens, one, headers)

    def settle(self, taken: TakenTokens, *, are_used: bool) -> None:
        """A call for vectors is over. `are_used`: False: it has used nothing."""
        n_tokens = taken.n_tokens if are_used else 0
        if taken.allowance is not None:
            self._opened.end(taken.allowance, n_tokens)
            self.link.note_over()
        if taken.tenant:
            self.usage.used(taken.tenant, n_tokens, 0)

    def accepted(self, request: Request) -> None:
        """A request is accepted: what it uses is counted from now on."""
        one = self._by_request.get(request.spec.request)
        if one is not None:
            one.request = request
            self.link.note_open()
            if request.is_over:
                self._settle(request)

    def resumed(self, requests: Iterable[Request], ended: Iterable[tuple[RequestSpec, int]] = ()) -> None:
        """The journal is replayed: these requests go on. The accounts know them already, or learn of them. `ended`: those that
        have ended not long ago, and the tokens of their answers, of which the accounts may not have heard."""
        for spec, n_tokens in ended:
            if self._policy_of(spec.terms.caller).is_limited:
                [one] = self._begin([spec], self._tenant_of(spec.terms.caller))
                one.is_recovered = True
                self._opened.end(one, one.tokens + n_tokens)
        for request in requests:
            if self._policy_of(request.spec.terms.caller).is_limited:
                [one] = self._begin([request.spec], self._tenant_of(request.spec.terms.caller))
                self._by_request[request.spec.request] = one
                one.request = request
        self.link.ready()

    def over(self, request: Request) -> None:
        """A request is over, or was withdrawn: then it has used nothing."""
        tenant = self._tenant_of(request.spec.terms.caller)
        if tenant and not request.is_withdrawn:
            self.usage.ended(tenant, request)
        self._settle(request)

    def _settle(self, request: Request) -> None:
        one = self._by_request.get(request.spec.request)
        if one is not None and one.request is request:
            del self._by_request[request.spec.request]
            self._opened.end(one, 0 if request.is_withdrawn else tokens_of(request))
            self.link.note_over()

    def _policy_of(self, caller: bytes) -> TenantPolicy:
        tenant = self._tenant_of(caller)
        return self.book.policy_of(tenant) if tenant else NO_POLICY

    def _begin(self, specs: Sequence[RequestSpec], tenant: str) -> list[OpenAllowance]:
        """The allowances of requests that came together. No more than a minute's tokens are set aside for all of them."""
        prompts = [sum(map(len, spec.prompts)) // _TOKEN_BYTES for spec in specs]
        most = [n + spec.terms.max_tokens * spec.n_sequences for n, spec in zip(prompts, specs, strict=True)]
        a_minute, opened = self.book.policy_of(tenant).tokens_per_min, list[OpenAllowance]()
        is_set_aside = not a_minute or sum(most) <= a_minute
        for spec, n_prompt, n_most in zip(specs, prompts, most, strict=True):
            key = self._opened.key_of(spec.request)
            one = OpenAllowance(key, tenant, spec.n_sequences, n_prompt, n_most, is_set_aside=is_set_aside)
            self._opened.begin(one)
            opened.append(one)
        return opened

    async def _take(self, tenant: str, policy: TenantPolicy, opened: Sequence[OpenAllowance]) -> AllowanceTaken:
        """What was taken. Raises: Refusal."""
        wanted = [_wanted(one) for one in opened]
        for one in opened:
            one.is_asked = True
        answer = await self.link.ask(tenant, wanted, is_known=self._stand_in.knows(tenant))
        if answer is not None:
            self._stand_in.heard(tenant, answer.state, self._post.now_s())
            for one in opened if answer.refused_by is not None else ():
                self._opened.drop(one)
        else:
            if policy.tokens_per_day and not self._stand_in.knows(tenant):
                raise Refusal("unavailable", _UNKNOWN.format(tenant), retry_after_s=_UNKNOWN_RETRY_S)
            n_open = self._opened.n_open(tenant) - sum(one.sequences for one in opened)
            answer = self._stand_in.decide(tenant, policy, wanted, n_open, self._post.now_s())
        if answer.refused_by is not None:
            self.usage.refused(tenant, answer.refused_by.value)
            headers = limit_headers(policy, answer.state)
            name, limit, needed = answer.refused_by, answer.limit, answer.needed
            raise refused_by(name, limit, needed, answer.retry_after_s, tenant, headers)
        for one in opened:
            one.decided()
        return answer

    def _give_back(self, opened: Iterable[OpenAllowance]) -> None:
        """These requests were not accepted, whatever the accounts think of them."""
        for one in opened:
            self._opened.end(one, 0)
            self.link.note_over()


def _wanted(one: OpenAllowance) -> WantedAllowance:
    n_prompt = one.tokens
    return WantedAllowance(
        request=one.key, sequences=one.sequences, prompt_tokens=n_prompt, output_tokens=one.most_tokens - n_prompt
    )
