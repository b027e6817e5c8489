"""The examples of docs/capacity.md, run as they stand there: what they print is what the page shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from supervisor.__main__ import main
from tests.support.documents.page_models import LLAMA_8B

PAGE = (Path(__file__).parents[3] / "docs" / "capacity.md").read_text(encoding="utf-8")
FOLDER = "/models/llama-3.1-8b"
SHOWN = re.findall(r"```sh\n(supervisor plan [^\n]*)\n```\n\n```\n(.*?)```", PAGE, re.DOTALL)
OTHERS = [line for line in re.findall(r"```sh\n(supervisor plan [^\n]*)\n```", PAGE) if line not in dict(SHOWN)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model of the page: its configuration alone."""
    there = tmp_path / Path(FOLDER).name
    there.mkdir()
    (there / "config.json").write_text(json.dumps(LLAMA_8B))
    return there


def run(line: str, folder: Path) -> Result:
    """Run a command of the page."""
    words = [str(folder) if word == FOLDER else word for word in shlex.split(line)]
    return CliRunner().invoke(main, words[1:])


@pytest.mark.parametrize(("line", "shown"), SHOWN, ids=[line for line, _ in SHOWN])
def test_an_example_prints_what_the_page_shows(line: str, shown: str, folder: Path) -> None:
    result = run(line, folder)
    assert result.exit_code == (2 if shown.startswith("supervisor: ") else 0)
    assert result.output == shown
    assert max(map(len, shown.splitlines())) <= 80 or shown.startswith("supervisor: ")


def test_the_page_has_its_examples() -> None:
    assert len(SHOWN) == 3
    assert [("--measure" in line, "--json" in line) for line in OTHERS] == [(True, False), (False, True)]


def test_the_figures_are_there_as_json(folder: Path) -> None:
    (line,) = [line for line in OTHERS if "--json" in line]
    figures = json.loads(run(line, folder).stdout)
    assert figures["layout"]["kv_dtype"] == "fp8"
    assert figures["source"] == "computed"
    assert figures["most"]["advised_requests_per_s"] == pytest.approx(0.7 * figures["most"]["requests_per_s"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--load nothing", "load: expected numbers above 0 of requests/s, prompt tokens and output tokens, as in"),
        ("--gpu H20", "gpu: expected one of B200"),
        ("--gpu H200 --gpus 0", "gpus: expected 1 or more with --gpu, got 0"),
        ("--gpu H200 --measure", "measure: expected no --gpu"),
        ("--gpu-memory-bytes 80GiB", "gpu-memory-bytes: expected --gpu beside it"),
        ("--gpu H200 --gpu-memory-bytes some", "gpu-memory-bytes: expected a size such as 80GiB, got some"),
        ("--gpu H200 --kv-dtype int2", "worker.kv_dtype: expected"),
        ("--model hash-chain", "model: expected one with weights, got hash-chain"),
        ("--gpu H200 --max-length 200000", "max_length: expected at most 8192 (the model's), got 200000"),
    ],
)
def test_what_cannot_be_planned_is_refused(words: str, said: str) -> None:
    result = CliRunner().invoke(main, ["plan", *shlex.split(words)])
    assert result.exit_code == 2
    assert said in result.output


def test_another_memory_holds_another_number_of_pages(folder: Path) -> None:
    line = f"supervisor plan --model {FOLDER} --gpu H200 --json"
    pages = [json.loads(run(line + more, folder).stdout)["memory"]["kv_pages"] for more in ("", " --gpu-memory-bytes 80GiB")]
    assert pages[0] > 2 * pages[1] > 0
