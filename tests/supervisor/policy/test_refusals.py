"""Placements that cannot compute deterministically are refused before a rank is started."""

from __future__ import annotations

import pytest

from messages.errors import ConfigError
from supervisor.policy.determinism import check_deterministic
from supervisor.policy.machine import Gpu
from supervisor.policy.placement import Placement

H200, T4 = Gpu("0", "NVIDIA H200", 1, (9, 0)), Gpu("1", "Tesla T4", 1, (7, 5))


@pytest.mark.parametrize(
    ("placement", "attention", "said"),
    [
        (Placement("cpu", (), 1, 1, "float16", deterministic=True), "auto", r"worker\.dtype: .* got float16"),
        (Placement("cuda", (H200,), 1, 1, "float16", deterministic=True), "torch", r'worker\.attention: .* got "torch"'),
        (Placement("cuda", (H200, T4), 1, 2, "float16", deterministic=True), "auto", "gpus: .* NVIDIA H200 and Tesla T4"),
    ],
)
def test_what_is_refused(placement: Placement, attention: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_deterministic(placement, attention)


def test_the_rest_is_accepted() -> None:
    """None of these raises."""
    check_deterministic(Placement("cpu", (), 1, 1, "float16"), "torch")
    check_deterministic(Placement("cuda", (H200,), 1, 1, "float16", deterministic=True), "auto")
    check_deterministic(Placement("cpu", (), 2, 1, "bfloat16", deterministic=True), "auto")
