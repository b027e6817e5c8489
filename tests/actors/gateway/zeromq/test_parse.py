"""What a message of a ZeroMQ client says of its seed."""

from __future__ import annotations

import pytest

from actors.gateway.zeromq.parse import new_request_of
from messages.generation.sampling import Sampling
from messages.ids import seed_of
from messages.public import Generate
from messages.wire.arrays import int32s


@pytest.mark.parametrize(("seed", "has_seed"), [(7, True), (seed_of("r-1"), False), (seed_of("r-2"), True)])
def test_a_seed_that_follows_from_the_id_is_not_the_clients_own(seed: int, has_seed: bool) -> None:
    message = Generate(request="r-1", tokens=int32s([1, 2]), sampling=Sampling(temperature=0.5, seed=seed))
    assert new_request_of(message, b"").has_seed is has_seed
