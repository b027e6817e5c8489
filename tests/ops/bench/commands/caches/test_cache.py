"""`cache` from its flags to the table, the JSON and the picture; a bad file is refused by its line."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from click.testing import CliRunner

from actors.pages.eviction.choice import EvictionName
from ops.bench.cache.generated import generate
from ops.bench.cache.trace_file import write_trace
from ops.bench.commands.caches.cache import command


def test_every_policy_gets_a_row_and_a_line(tmp_path: Path) -> None:
    trace, svg, out = tmp_path / "own.jsonl.gz", tmp_path / "rates.svg", tmp_path / "rates.json"
    write_trace(trace, generate("tenants", 60, 0))
    flags = ["--trace", "burst", "--file", str(trace), "--requests", "60", "--pages", "1024", "--pages", "2048"]
    result = CliRunner().invoke(command, [*flags, "--svg", str(svg), "--out", str(out)])
    assert result.exit_code == 0, result.output
    figures = json.loads(out.read_text())
    policies = {"vLLM's rule", *(name.value for name in EvictionName)}
    rows = {(row["trace"], row["pages"], row["policy"]) for row in figures["rows"]}
    assert rows == {(name, n, policy) for name in ("burst", "own.jsonl.gz") for n in (1024, 2048) for policy in policies}
    assert all(0 < row["hit_rate"] < 1 and row["pages_per_s"] > 0 for row in figures["rows"])
    assert set(figures["operations_per_s"]) == {name.value for name in EvictionName}
    lines = ElementTree.fromstring(svg.read_text()).findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2 * len(policies)


def test_a_bad_file_and_a_cache_that_is_too_small_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"at_ms": 1}\n')
    result = CliRunner().invoke(command, ["--file", str(tmp_path / "bad.jsonl")])
    assert result.exit_code == 1
    assert "bad.jsonl, line 1:" in result.output
    result = CliRunner().invoke(command, ["--trace", "chat", "--requests", "300", "--pages", "64"])
    assert result.exit_code == 1
    assert "pages: expected at least " in result.output
