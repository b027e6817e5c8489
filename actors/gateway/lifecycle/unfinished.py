"""The requests of a gateway that have not ended, by their ids, and the deadline of each."""

from __future__ import annotations

from collections.abc import Callable

from actors.gateway.dispatch.post import Post, Timer
from actors.gateway.lasting_waits import LASTING_S, LastingWaits
from actors.gateway.requests.request import Request


class UnfinishedRequests:
    """Requests with at least one sequence without a visible ending. It keeps them: their sequences do not."""

    def __init__(
        self, post: Post, lasting: LastingWaits, request_timeout_s: float, on_deadline: Callable[[Request], None]
    ) -> None:
        """`request_timeout_s`: the longest of any request. `on_deadline` is called with one that has not ended in its time."""
        self._post, self._lasting = post, lasting
        self._request_timeout_s, self._on_deadline = request_timeout_s, on_deadline
        self._request_by_id: dict[str, Request] = {}
        # A timer that has run keeps nothing, and another request may have the id of one whose ending is not visible yet. Until
        # a request has lasted a second there is no timer
        self._deadline_by_number: dict[int, tuple[Timer | None, Request]] = {}

    @property
    def all(self) -> list[Request]:
        """All of them, in the order in which they were added."""
        return list(self._request_by_id.values())

    def find(self, request_id: str) -> Request | None:
        """The request with this id; None if it has ended or never was."""
        return self._request_by_id.get(request_id)

    def add(self, request: Request) -> None:
        """Add a request, and start its deadline, which counts from its arrival."""
        self._request_by_id[request.spec.request] = request
        if self._left_s(request) <= LASTING_S:
            self._set_timer(request)
        else:
            self._deadline_by_number[request.number] = None, request
            self._lasting.add(request.number, lambda: self._set_timer(request))

    def _set_timer(self, request: Request) -> None:
        timer = self._post.later(max(self._left_s(request), 0.0), lambda: self._on_deadline(request))
        self._deadline_by_number[request.number] = timer, request

    def _left_s(self, request: Request) -> float:
        return self.limit_s(request) - (self._post.now_s() - request.began_s)

    def remove(self, request: Request) -> None:
        """Remove a request, and cancel its deadline."""
        timer, _ = self._deadline_by_number.pop(request.number)
        if timer is None:
            self._lasting.remove(request.number)
        else:
            timer.cancel()
        if self._request_by_id.get(request.spec.request) is request:  # another one may have its id now
            del self._request_by_id[request.spec.request]

    def limit_s(self, request: Request) -> float:
        """Seconds from its arrival in which a request must end: its own deadline, at most the server's."""
        return min(filter(None, (request.spec.terms.deadline_s, self._request_timeout_s)))

    def stop(self) -> None:
        """Cancel all deadlines, and all lasting waits."""
        self._lasting.stop()
        for timer, _ in self._deadline_by_number.values():
            if timer is not None:
                timer.cancel()
