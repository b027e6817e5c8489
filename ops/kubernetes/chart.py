"""The Helm chart, rendered without a cluster."""

from __future__ import annotations

import importlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHART = Path(__file__).parents[1] / "helm" / "tardigrade"
VALUES = CHART.parent / "values"
_PACKAGE = "helm_python"  # Helm as a library: pip install helm-python-sdk
_DEADLINE_S = 60.0


class NoHelm(RuntimeError):
    """Neither the program nor the package of Helm is here."""


def rendered(values: Path, name: str, namespace: str = "default") -> str:
    """All manifests of a release with this file of values, as one YAML text in the order of their files.

    Raises: NoHelm; CalledProcessError, or an error of the package, for a chart that cannot be rendered.
    """
    if (program := shutil.which("helm")) is not None:
        command = [program, "template", name, str(CHART), "--namespace", namespace, "--values", str(values)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_DEADLINE_S).stdout
    try:
        helm: Any = importlib.import_module(_PACKAGE)
    except ModuleNotFoundError:
        raise NoHelm("expected helm, or pip install helm-python-sdk") from None
    with helm.Chart.load(str(CHART)) as chart:
        table = helm.values_from_yaml(values.read_text(encoding="utf-8"))
        files: dict[str, str] = chart.render(table, name=name, namespace=namespace)
    return "".join(f"---\n{text.strip()}\n" for path, text in sorted(files.items()) if text.strip() and path.endswith(".yaml"))
