"""Draws the dashboards.

python -m ops.grafana            write ops/grafana/dashboards/*.json
python -m ops.grafana --check    exit status 1 if a file differs from what would be written
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ops.grafana.actors import ACTORS
from ops.grafana.gpus import GPUS
from ops.grafana.service import SERVICE

FOLDER = Path(__file__).parent / "dashboards"
PAGES = (SERVICE, ACTORS, GPUS)


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit status."""
    stale = False
    for page in PAGES:
        path, text = FOLDER / f"{page.uid}.json", json.dumps(page.json(), indent=1) + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale = True
        if "--check" in arguments:
            print(f"{path.name} differs from its drawing; run python -m ops.grafana", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
    return int(stale and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
