"""`python -m ops.kubernetes.check`: renders the chart with each example of values and checks it against Kubernetes' schemas.

Needs Helm (the program, or helm-python-sdk), PyYAML and kubernetes-validate. Prints a line of JSON for each file of values:
`file`, `kinds` of its manifests, `complaints`. The exit status is 1 if there are complaints.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from ops.kubernetes.chart import VALUES, rendered

VERSIONS = ("1.27", "1.32", "1.35")  # of Kubernetes: the oldest that the chart allows, and later ones
_FOREIGN = frozenset({"ServiceMonitor"})  # of the Prometheus operator, whose schema is not at hand


def complaints_about(manifest: dict[str, Any]) -> list[str]:
    """What the schemas of these versions say against a manifest. Fields that they do not know are complaints, too."""
    checker: Any = importlib.import_module("kubernetes_validate")
    found = []
    for version in VERSIONS if manifest["kind"] not in _FOREIGN else ():
        try:
            checker.validate(manifest, version, strict=True)
        except (checker.ValidationError, checker.SchemaNotFoundError) as error:
            found.append(f"{manifest['kind']}, Kubernetes {version}: {error}")
    return found


def check(values: Path) -> tuple[list[str], list[str]]:
    """Kinds and complaints of the manifests with this file of values."""
    yaml: Any = importlib.import_module("yaml")
    manifests = [one for one in yaml.safe_load_all(rendered(values, "llm", "serving")) if one]
    return [one["kind"] for one in manifests], [line for one in manifests for line in complaints_about(one)]


def main() -> int:
    """Check all examples; returns the exit status."""
    is_well = True
    for values in sorted(VALUES.glob("*.yaml")):
        kinds, complaints = check(values)
        print(json.dumps({"file": values.name, "kinds": sorted(kinds), "complaints": complaints}))
        is_well = is_well and not complaints
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
