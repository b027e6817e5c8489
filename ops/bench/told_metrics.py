"""Single figures from a server's page of metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def by_actor(page: str, name: str) -> dict[str, float]:
    """The samples of this name on the text of `/metrics`, by the actor that tells them."""
    families = text_string_to_metric_families(page)
    return {one.labels["actor"]: one.value for family in families for one in family.samples if one.name == name}
