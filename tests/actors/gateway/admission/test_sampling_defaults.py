"""A request without a parameter of sampling has the operator's, or the model's, or OpenAI's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.admission.sampling_defaults import sampling_defaults
from actors.gateway.settings import GatewaySettings
from messages.errors import ConfigError
from tests.support.gateway.gateway_rig import rig

TOLD = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": -1, "repetition_penalty": None, "eos_token_id": 1}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"temperature": 0.6, "top_p": 0.95, "top_k": 20}),
        ({"generation_config": "none"}, {}),
        ({"default_sampling": {"top_k": 5, "min_p": 0.1}}, {"temperature": 0.6, "top_p": 0.95, "top_k": 5, "min_p": 0.1}),
    ],
)
def test_the_operators_win_over_the_models(settings: dict[str, Any], expected: dict[str, float], tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(TOLD))
    assert sampling_defaults(GatewaySettings(model_folder=str(tmp_path), **settings)) == expected


@pytest.mark.parametrize("wrong", [{"top_p": 2.0}, {"seed": 1}, {"top_k": 1.5}])
def test_what_the_operator_cannot_mean_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"default_sampling.{next(iter(wrong))}"):
        sampling_defaults(GatewaySettings(default_sampling=wrong))


async def test_a_request_has_what_it_gives_and_the_defaults_for_the_rest() -> None:
    async with rig(default_sampling={"temperature": 0.25, "top_k": 7}) as r, r.http() as http:
        card = (await http.get("/v1/models/hash-chain")).json()
        assert card["default_sampling"] == {"temperature": 0.25, "top_p": 1.0, "top_k": 7}
        for given in ({}, {"top_k": 0}, {"temperature": 1.0}):
            assert (await http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, **given})).status_code == 200
        used = [(s.sampling.temperature, s.sampling.top_k) for s in r.scheduler().submits]
        assert used == [(0.25, 7), (0.25, 0), (1.0, 7)]
