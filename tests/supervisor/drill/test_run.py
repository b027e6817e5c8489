"""What a drill takes for the right answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisor.drill import run
from supervisor.drill.readers import Follow
from supervisor.drill.streams import DrillStream, StreamRequest


@pytest.mark.parametrize(("n_steady", "n_compared"), [(4, 4), (2, 2), (1, 0), (0, 0)])
async def test_answers_are_compared_where_at_least_half_of_them_are_the_same_twice(
    n_steady: int, n_compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that adds in another order each time answers some prompts alike twice by chance."""

    def told() -> Iterator[list[DrillStream]]:
        for turn in range(2):
            yield [
                DrillStream(f"p{number}", 0.0, [f"{number}" if number < n_steady else f"{number} {turn}"], [1.0])
                for number in range(4)
            ]

    turns = told()

    async def stream_all(options: StreamRequest, prompts: list[str], follow: Follow) -> list[DrillStream]:
        return next(turns)

    monkeypatch.setattr(run, "_stream_all", stream_all)
    request = StreamRequest("http://127.0.0.1:1", "m", 8, 16, 9.0, True, "", {}, None)
    reference = await run.reference_of(request, [f"p{number}" for number in range(4)])
    assert len(reference.answers) == n_compared
    assert reference.n_unsteady == 4 - n_steady
