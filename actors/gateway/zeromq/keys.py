"""The API keys in messages of ZeroMQ clients, each of which shows its own: a connection may change, and so may its gateway."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from actors.gateway.access.key_ring import KeyHolder, KeyRing
from actors.gateway.zeromq.call_tasks import CallTasks
from messages import public
from messages.access.api_key import Role

FOR_METRICS: tuple[type[public.KeyedMessage], ...] = (public.StatsWanted,)  # a key of the role metrics opens them
FOR_ADMINS: tuple[type[public.KeyedMessage], ...] = (public.CacheResetWanted,)  # each call has a line in the audit log
_CHECKED_LATER = FOR_METRICS + FOR_ADMINS
Handle = Callable[[bytes, public.KeyedMessage, int, KeyHolder | None], None]


class ZmqKeys:
    """Lets messages in. `keys`: None: nobody is asked for one. `handle`: is called with the identity, the message, its size and
    the holder of its key."""

    def __init__(self, keys: KeyRing | None, tasks: CallTasks, handle: Handle) -> None:
        self._keys, self._tasks, self._handle = keys, tasks, handle

    @property
    def are_asked_for(self) -> bool:
        """True if messages have to show a key."""
        return self._keys is not None

    def let_in(self, identity: bytes, message: public.KeyedMessage, n_bytes: int, *, is_operator: bool) -> None:
        """Handle a message now, or once its key has been checked; a key that is wrong is refused. `is_operator`: it needs none,
        as what only the operator asks for at the server's own socket."""
        if self._keys is None or is_operator:
            self._handle(identity, message, n_bytes, None)
            return
        key = "" if message.api_key is msgspec.UNSET else message.api_key
        holder = self._keys.known(key)
        if holder is not None and (holder.role is not Role.METRICS or isinstance(message, _CHECKED_LATER)):
            self._handle(identity, message, n_bytes, holder)
        else:
            self._tasks.spawn(identity, _name_of(message), partial(self._checked, self._keys, key, identity, message, n_bytes))

    async def _checked(self, keys: KeyRing, key: str, identity: bytes, message: public.KeyedMessage, n_bytes: int) -> None:
        holder = await keys.holder_of(key)
        if not isinstance(message, _CHECKED_LATER):
            holder.check_may_ask()
        self._handle(identity, message, n_bytes, holder)


def _name_of(message: public.KeyedMessage) -> str:
    """What the client calls the call that this message makes."""
    return message.request if isinstance(message, public.AnswersWanted | public.Generate) else getattr(message, "call", "")
