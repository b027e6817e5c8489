"""Bodies that clients send, recorded or written by hand in tests/clients/bodies: none is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.clients.prose import without_prose
from tests.clients.running_suites import BY_NAME
from tests.support.embedding.embedders import add_embedder, gateway_fields
from tests.support.gateway.gateway_rig import rig

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[4] / "clients" / "bodies"
BY_HAND = sorted(FOLDER.glob("*.json"))
RECORDED = sorted((FOLDER / "recorded").glob("*.json"))
SETTINGS = {
    "model_name": "smollm2",
    "embedding_model": "all-MiniLM-L6-v2",
    "embedding_dimensions": 384,
    "embedding_length": 256,
}
N_ANSWERED = 8  # tokens of each answer at most: some clients ask for 32,000


def requests_of(file: Path) -> list[dict[str, Any]]:
    """The requests in a file: those of a recording, or the one that is written by hand."""
    found = msgspec.json.decode(file.read_bytes())
    return found.get("requests", [found])


async def test_no_body_of_a_client_is_refused(smollm2_text_folder: Path) -> None:
    refused: list[tuple[str, str, str]] = []
    settings = gateway_fields() | SETTINGS
    async with rig(model_folder=str(smollm2_text_folder), **settings) as r, r.http() as http:
        await add_embedder(r)
        scheduler = r.scheduler()
        scheduler.output_of = lambda submit, n: scheduler.chain(submit, min(n, N_ANSWERED))
        for file in (*BY_HAND, *RECORDED):
            for sent in requests_of(file):
                answer = await http.post(sent["path"], json=sent["body"], headers=sent.get("headers", {}))
                if answer.status_code != 200:
                    refused.append((file.name, sent["path"], answer.text))
    assert refused == []


@pytest.mark.parametrize("name", BY_NAME)
def test_each_suite_has_a_recording_with_the_version_of_its_client(name: str) -> None:
    found = msgspec.json.decode((FOLDER / "recorded" / f"{name}.json").read_bytes())
    assert (found["client"], bool(found["requests"])) == (BY_NAME[name].client, True)
    assert re.match(r"\d+\.\d+", found["version"])


@pytest.mark.parametrize("name", [name for name, suite in BY_NAME.items() if suite.has_texts])
def test_recordings_of_agents_have_none_of_their_texts(name: str) -> None:
    found = msgspec.json.decode((FOLDER / "recorded" / f"{name}.json").read_bytes())
    assert without_prose(found["requests"]) == found["requests"]


@pytest.mark.parametrize("client", ["claude-code", "continue", "open-webui", "vercel-ai"])
def test_each_other_client_has_a_body_and_the_readme_says_where_it_comes_from(client: str) -> None:
    assert [file for file in BY_HAND if file.name.startswith(client)]
    (row,) = [line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith(f"| `{client}")]
    assert "https://" in row
