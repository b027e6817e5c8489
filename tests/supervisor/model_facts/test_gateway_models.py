"""Sampling of requests that do not say otherwise."""

from __future__ import annotations

import pytest

from actors.gateway.settings import GatewaySettings
from supervisor.config.server_config import ServerConfig
from supervisor.model_facts.gateway_models import sampling_of


@pytest.mark.parametrize(
    ("model", "settings", "found"),
    [
        ("", GatewaySettings(), {"temperature": 0.6}),
        ("SmolLM2-135M-Instruct", GatewaySettings(default_sampling={"top_p": 1}), {"temperature": 0.6, "top_p": 1}),
        ("smollm2", GatewaySettings(default_sampling={"temperature": 1.0}), {"temperature": 1.0}),
        ("smollm2", GatewaySettings(generation_config="none"), {}),
        ("/models/m", GatewaySettings(default_sampling={"top_k": 5}), {"top_k": 5}),
    ],
)
def test_the_packaged_model_has_a_temperature_below_the_operators(
    model: str, settings: GatewaySettings, found: dict[str, float]
) -> None:
    assert sampling_of(ServerConfig(model=model, gateway=settings)) == found
