"""`python -m ops.kubernetes`: draws `base/server.yaml` from the Helm chart, for clusters without Helm."""

from __future__ import annotations

import re
from pathlib import Path

from ops.kubernetes.chart import VALUES, rendered

DRAWN = Path(__file__).parent / "base" / "server.yaml"
_HEAD = "# Drawn from ops/helm by python -m ops.kubernetes: change the chart, or an overlay of Kustomize.\n"


def plain_manifests() -> str:
    """The manifests of a server on CPU cores, without what only Helm reads.

    Raises: NoHelm.
    """
    text = rendered(VALUES / "cpu.yaml", "tardigrade")
    return _HEAD + re.sub(r"^ +app\.kubernetes\.io/managed-by: .*\n|^# Source: .*\n", "", text, flags=re.MULTILINE)


if __name__ == "__main__":
    DRAWN.write_text(plain_manifests(), encoding="utf-8")
