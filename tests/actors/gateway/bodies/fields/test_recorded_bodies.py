"""Bodies that clients send, one file each in tests/clients/bodies: none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.gateway.gateway_rig import rig

FOLDER = Path(__file__).parents[4] / "clients" / "bodies"
FILES = sorted(FOLDER.glob("*.json"))


async def test_no_body_of_a_client_is_refused(smollm2_text_folder: Path) -> None:
    assert FILES
    refused: list[tuple[str, str]] = []
    async with rig(model_folder=str(smollm2_text_folder), model_name="smollm2") as r, r.http() as http:
        for file in FILES:
            sent: dict[str, Any] = msgspec.json.decode(file.read_bytes())
            answer = await http.post(sent["path"], json=sent["body"], headers=sent.get("headers", {}))
            if answer.status_code != 200:
                refused.append((file.name, answer.text))
    assert refused == []


@pytest.mark.parametrize("client", ["claude-code", "codex", "continue", "litellm", "open-webui"])
def test_each_client_has_a_body_and_the_readme_says_where_it_comes_from(client: str) -> None:
    assert [file for file in FILES if file.name.startswith(client)]
    assert f"`{client}" in (FOLDER / "README.md").read_text()
