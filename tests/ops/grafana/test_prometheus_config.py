"""The lines of the scrape configuration that wait behind a comment sign, for servers with TLS and with API keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec.yaml

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "ops" / "prometheus" / "prometheus.yml"


def test_the_lines_for_tls_name_what_the_certificate_of_the_first_hour_has() -> None:
    """Without a server name Prometheus wants the scraped address, 127.0.0.1, in the certificate."""
    text = re.sub(r"^( +)# (?=(scheme|tls_config|authorization): )", r"\1", CONFIG.read_text(), flags=re.MULTILINE)
    config: Any = msgspec.yaml.decode(text)
    (job,) = config["scrape_configs"]
    names = re.findall(r"DNS:([a-z.]+)", (ROOT / "docs" / "operations.md").read_text())
    assert job["scheme"] == "https"
    assert job["tls_config"]["server_name"] in names
    assert job["authorization"]["credentials_file"].startswith("/etc/prometheus/")
