"""Somebody replaces the files of a model while a server runs: no stream goes on with the tokens of another model."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from messages.client import Client
from messages.lifecycle.tree import ChildState, StatusReport
from tests.support.real_server import RealServer, real_server

pytestmark = pytest.mark.timeout(600)
TRIES = ("supervisor.gang_restarts=100000", "supervisor.actor_restarts=100000", "supervisor.restart_attempts=1000")
PROMPT, N_TOKENS, WAIT_S = list(range(3, 40)), 400, 240.0
CHANGED = "expected the weights with which this server was started"


def replace_weights(folder: Path) -> Path:
    """Other weights under the same names; returns the old file."""
    file, kept = folder / "model.safetensors", folder / "old"
    file.rename(kept)
    save_file({name: -weight for name, weight in load_file(kept).items()}, file)
    return kept


def is_replaced(report: StatusReport) -> bool:
    """True if there is another worker than the first one, and it computes."""
    return any(c.name == "worker/0.0" and c.incarnation > 1 and c.state == ChildState.READY for c in report.children)


def answer_amid_deaths(server: RealServer, folder: Path) -> list[int]:
    """The tokens of a stream whose worker and gateway are killed after the weights have been replaced; they come back later."""
    old = replace_weights(folder)
    with Client(server.zeromq) as client:
        tokens: list[int] = []
        for piece in client.stream(tokens=PROMPT, max_tokens=N_TOKENS, temperature=0.0, ignore_eos=True):
            if not tokens:
                server.kill("worker/0.0")
                server.kill("gateway/0")
                server.wait_for(lambda report: CHANGED in server.log() or is_replaced(report), WAIT_S)
                old.rename(folder / "model.safetensors")
            tokens.extend(piece.ids)
    return tokens


@pytest.mark.long  # `make test` compares digests in tests/messages/lifecycle/test_model_digests.py
def test_a_worker_with_other_weights_does_not_take_over(tmp_path: Path) -> None:
    from tests.support.workers.tiny_model import write_model  # torch, which no other test of whole servers needs

    folder = write_model(tmp_path)
    sets = [part for flag in TRIES for part in ("--set", flag)]
    with real_server("--model", str(folder), "--dtype", "float32", "--no-vault", *sets) as server:
        with Client(server.zeromq) as client:
            right = list(client.generate(PROMPT, max_tokens=N_TOKENS, temperature=0.0, ignore_eos=True).tokens)
        assert answer_amid_deaths(server, folder) == right
