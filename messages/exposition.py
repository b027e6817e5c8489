"""The Prometheus text of all actors together.

A scrape of a server with a hundred tenants has some 800 series. prometheus_client needs six times as long for the same text,
and a gateway's streams would wait meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.utils import floatToGoString

from messages.lifecycle.lifecycle import MetricFamily

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_UNTYPED = {"unknown": "untyped"}
_ACTOR = "actor"
_MOST_STARTS = 20_000

LineStarts = dict[tuple[str, ...], str]  # name and labels as they stand in the text, by their own values


def render_exposition(by_actor: Iterable[tuple[str, list[MetricFamily]]], starts: LineStarts | None = None) -> bytes:
    """One Prometheus text (format 0.0.4) for all actors; each sample gets the label `actor`. Families of one name come
    together, with the type and the documentation of the first one. Names of families and labels must be valid in Prometheus.

    `starts`: of the caller, who gives it again the next time: it keeps what comes before the values, which is the same in each
    scrape, and is emptied before it grows without bound."""
    starts = {} if starts is None else starts
    if len(starts) > _MOST_STARTS:
        starts.clear()
    lines_by_name: dict[str, list[str]] = {}
    for actor, families in by_actor:
        for family in families:
            lines = lines_by_name.get(family.name)
            if lines is None:
                lines = lines_by_name[family.name] = _head(family)
            name = family.name
            for sample in family.samples:
                labels = sample.labels
                key = (actor, name, sample.suffix, *labels, *labels.values())
                if (start := starts.get(key)) is None:
                    start = starts[key] = f"{name}{sample.suffix}{{{_labels(labels, actor)}}}"
                lines.append(f"{start} {_number(sample.value)}")
    return "".join(f"{line}\n" for lines in lines_by_name.values() for line in lines).encode()


def _head(family: MetricFamily) -> list[str]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    documentation = family.documentation.translate(_HELP_ESCAPES)
    return [f"# HELP {name} {documentation}", f"# TYPE {name} {_UNTYPED.get(family.type, family.type)}"]


def _labels(labels: Mapping[str, str], actor: str) -> str:
    """The labels in the order of their names."""
    if not labels:
        return f'{_ACTOR}="{actor}"'
    parts = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    parts.append(f'{_ACTOR}="{actor}"')
    parts.sort()
    return ",".join(parts)


def _escaped(value: str) -> str:
    return value if value.isalnum() else value.translate(_ESCAPES)


def _number(value: float) -> str:
    """A value as Prometheus writes it. Most are small, and Python writes those alike."""
    return repr(value) if -1e6 < value < 1e6 else floatToGoString(value)
