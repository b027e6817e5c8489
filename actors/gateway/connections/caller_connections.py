"""The bound on the open HTTP connections of one caller, so that no caller holds all that a gateway may have.

A connection belongs to the caller at its address until a request on it shows who asks: by an API key, or in the header that a
trusted proxy sets. From then on it belongs to that caller. A caller above its bound is told so on a few connections. Further
ones are closed at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from starlette.types import Scope

from actors.gateway.admission.caller import caller_of_address
from actors.gateway.overload.caller_shares import CallerShares
from actors.gateway.requests.refusals import Refusal
from actors.gateway.settings import GatewaySettings

EXTENSION = "tardigrade.place"  # key of a connection's `ConnectionPlace` in the ASGI scope's extensions
CUT = "caller"  # the reason in the metric of cut connections
_SPARE = 16  # refused connections of one caller that are open at a time, so that they can be told
_RETRY_S = 1.0
_NOBODY = b""
_WEIGHT = 1.0  # of every caller: a tenant's weight divides tokens, and is not known when a connection is made


class CallerConnections:
    """Counts the connections of one gateway by caller. `most_in_all`: how many all callers together may have now.

    `most`: of one caller; 0: its share of all of them.
    """

    def __init__(self, most_in_all: Callable[[], int], most: int, on_cut: Callable[[str], None]) -> None:
        self._most_in_all, self._most, self.on_cut = most_in_all, most, on_cut
        self._shares = CallerShares(most_in_all(), are_told_apart=True)
        self._n_refused: Counter[bytes] = Counter()

    @classmethod
    def of(
        cls, settings: GatewaySettings, most_in_all: Callable[[], int], on_cut: Callable[[str], None]
    ) -> CallerConnections | None:
        """The counts that these settings ask for; None if they bound no caller: an address may be that of a proxy, so without
        keys, and without a header of callers, it has a bound only if the settings give one."""
        most = settings.max_caller_connections
        return cls(most_in_all, most, on_cut) if most or settings.names_callers else None

    def enter(self, address: str) -> ConnectionPlace | None:
        """The place of a new connection from this IP address; None if it has to be closed at once."""
        caller = caller_of_address(address)
        refusal = self._refusal(caller)
        if refusal is not None:
            self.on_cut(CUT)
            if self._n_refused[caller] >= _SPARE:
                return None
            self._n_refused[caller] += 1
        return self._place(caller, refusal)

    def keep(self) -> ConnectionPlace:
        """The place of a connection that the last incarnation has accepted, so it is not one too many. It is nobody's until its
        next request, because a proxy's address may have those of many callers."""
        return self._place(_NOBODY, None)

    def move(self, old: bytes, new: bytes) -> None:
        """A connection of one caller belongs to another one now. Raises: Refusal, and it stays with the first."""
        self._shares.release(old, 1)
        refusal = self._refusal(new)
        self._shares.add(old if refusal is not None else new, _WEIGHT, 1)
        if refusal is not None:
            self.on_cut(CUT)
            raise refusal

    def leave(self, caller: bytes, *, was_refused: bool) -> None:
        """A connection of this caller has ended."""
        self._shares.release(caller, 1)
        if was_refused:
            self._n_refused[caller] -= 1
            if not self._n_refused[caller]:
                del self._n_refused[caller]

    def _place(self, caller: bytes, refusal: Refusal | None) -> ConnectionPlace:
        self._shares.add(caller, _WEIGHT, 1)
        return ConnectionPlace(self, caller, refusal)

    def _refusal(self, caller: bytes) -> Refusal | None:
        """Why this caller may have no further connection; None if it may."""
        shares = self._shares
        shares.limit = self._most_in_all()
        held = shares.held_by(caller)
        room = self._most - held if self._most else shares.room(caller, _WEIGHT)
        if room > 0 or not held:
            return None
        if self._most:
            bound = f"at most {self._most} open ones of one caller (gateway.max_caller_connections)"
        else:
            bound = f"at most {held} open ones of one caller now, its share of {shares.limit} (gateway.max_connections)"
        detail = f"connections: expected {bound}, got {held + 1}"
        limit = f"caller_connections={self._most or held}"
        return Refusal("caller_share", detail, retry_after_s=_RETRY_S, headers={"Connection": "close"}, limit=limit)


class ConnectionPlace:
    """The place of one connection among those of its caller. `refusal`: the answer to all of its requests; None: it may ask."""

    __slots__ = ("_all", "_caller", "_has_left", "refusal")

    def __init__(self, counts: CallerConnections, caller: bytes, refusal: Refusal | None) -> None:
        self._all, self._caller, self.refusal = counts, caller, refusal
        self._has_left = False

    def belongs_to(self, caller: bytes) -> None:
        """A request has shown who asks on this connection. Raises: Refusal if this caller has too many already."""
        if caller != self._caller and not self._has_left and self.refusal is None:
            self._all.move(self._caller, caller)
            self._caller = caller

    def leave(self) -> None:
        """The connection has ended. Further calls do nothing."""
        if not self._has_left:
            self._has_left = True
            self._all.leave(self._caller, was_refused=self.refusal is not None)


def settle(scope: Scope, caller: bytes) -> None:
    """Count the connection of an ASGI request for the caller that the request has shown. Raises: Refusal."""
    place = scope.get("extensions", {}).get(EXTENSION)
    if place is not None:
        place.belongs_to(caller)
