"""Which pages the site has, in which order, and under which titles. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

REFERENCE = "reference.md"


@dataclass(frozen=True)
class Page:
    """A page: its title in the navigation, its file on the site, and the document of the repository that it shows."""

    title: str
    name: str
    document: str = ""  # relative to the repository; empty: docs/NAME
    is_drawn: bool = False  # made while the site is built, from the code
    weight: float = 1.0  # among what a search finds; below 1 for pages that name everything

    @property
    def source(self) -> str:
        """The document's path, relative to the repository; also of one that is drawn, which has no file there."""
        return self.document or f"docs/{self.name}"


@dataclass(frozen=True)
class Chapter:
    """A part of the navigation."""

    title: str
    pages: tuple[Page, ...]


SECTIONS = (
    Chapter(
        "Start",
        (
            Page("Overview", "index.md"),
            Page("In short", "overview.md", "README.md"),
            Page("Getting started", "getting_started.md"),
            Page("The live page", "page.md"),
            Page("Commands", "commands.md"),
            Page("Coming from vLLM or Ollama", "migration.md"),
        ),
    ),
    Chapter(
        "Clients",
        (
            Page("HTTP API", "api.md"),
            Page("API reference", REFERENCE, is_drawn=True),
            Page("Python and ZeroMQ", "zeromq.md"),
        ),
    ),
    Chapter(
        "Operations",
        (
            Page("Keys, tenants and limits", "operations.md"),
            Page("Deployment", "deployment.md"),
            Page("Capacity planning", "capacity.md"),
            Page("Configuration", "configuration.md"),
            Page("Monitoring", "monitoring.md"),
            Page("Metrics", "metrics.md"),
            Page("Traces", "traces.md"),
            Page("Troubleshooting", "troubleshooting.md"),
            Page("Security", "security.md", "SECURITY.md"),
        ),
    ),
    Chapter(
        "Guides",
        (
            Page("Survival", "reliability.md"),
            Page("Caching", "caching.md"),
            Page("Scheduling policies", "policies.md"),
            Page("Balancing replicas", "balancing.md"),
            Page("Overload", "overload.md"),
            Page("Quantised checkpoints", "checkpoints.md"),
            Page("Performance", "performance.md", weight=0.6),
            Page("Performance on GPUs", "performance_gpus.md", weight=0.5),
            Page("Performance on CPU cores", "performance_cpus.md", weight=0.5),
        ),
    ),
    Chapter(
        "Project",
        (
            Page("Architecture", "architecture.md"),
            Page("Map of the code", "map.md", weight=0.1),
            Page("Glossary", "glossary.md"),
            Page("Contributing", "contributing.md", "CONTRIBUTING.md"),
            Page("Changes", "changelog.md", "CHANGELOG.md", weight=0.2),
            Page("Log of experiments", "log.md", weight=0.2),
        ),
    ),
)


def pages_of(sections: Sequence[Chapter] = SECTIONS) -> list[Page]:
    """All pages in the order of the navigation."""
    return [page for section in sections for page in section.pages]


def present(has_document: Callable[[str], bool], sections: Sequence[Chapter] = SECTIONS) -> list[Chapter]:
    """The sections with the pages whose document is there. `has_document` is asked with paths of the repository."""
    kept = [
        Chapter(section.title, tuple(page for page in section.pages if page.is_drawn or has_document(page.source)))
        for section in sections
    ]
    return [section for section in kept if section.pages]
