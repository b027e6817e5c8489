"""Single figures from a server's page of metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def by_actor(page: str, name: str) -> dict[str, float]:
    """The samples of this name on the text of `/metrics`, by the actor that tells them."""
    return by_label(page, name, "actor")


def by_label(page: str, name: str, label: str) -> dict[str, float]:
    """The samples of this name on the text of `/metrics`, by one of their labels, in the order of the page."""
    families = text_string_to_metric_families(page)
    return {one.labels[label]: one.value for family in families for one in family.samples if one.name == name}
